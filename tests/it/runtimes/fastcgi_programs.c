/* A FastCGI program on libfcgi that does what its query says. */
#include <fcgi_stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *name)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    FILE *file = fopen(name, "w");
    fwrite(text, 1, length, file);
    fclose(file);
}

int main(void)
{
    const char *value = getenv("OWN");
    const char *own = value ? strdup(value) : "";

    while (FCGI_Accept() >= 0) {
        const char *query = getenv("QUERY_STRING");
        if (!strcmp(query, "early")) {
            printf("Content-Type: text/plain\r\n\r\nearly");
            continue;
        }
        if (!strcmp(query, "short")) {
            printf("Content-Type: text/plain\r\nContent-Length: 100000\r\n\r\nfour");
            continue;
        }
        if (!strcmp(query, "hang")) {
            note("hanging");
            for (;;)
                pause();
        }
        if (!strcmp(query, "half")) {
            printf("Content-Type: text/plain\r\n\r\nhalf");
            fflush(stdout);
            note("halved");
            for (;;)
                pause();
        }
        if (!strcmp(query, "slow")) {
            note("slow");
            while (access("go", F_OK))
                ;
        }
        if (!strcmp(query, "moan"))
            fprintf(stderr, "oh dear\n");
        if (!strcmp(query, "say")) {
            if (write(2, "plain words\n", 12) < 0)
                return 1;
        }
        if (!strcmp(query, "status"))
            FCGI_SetExitStatus(7);
        printf("Content-Type: text/plain\r\n\r\n");
        if (!strcmp(query, "echo")) {
            char buffer[65536];
            size_t count;
            while ((count = fread(buffer, 1, sizeof buffer, stdin)) > 0)
                fwrite(buffer, 1, count, stdout);
        } else {
            printf("pid=%d own=%s", (int)getpid(), own);
        }
    }
    note("left");
    return 0;
}
