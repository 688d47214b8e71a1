/* Extensions of PHP. Most can't be forked with: each leaves something behind when it starts. One says when it ends. */
#include "php.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <fcntl.h>

#ifdef THREAD
static void *wait_for_ever(void *nothing)
{
    for (;;) {
        pause();
    }
    return nothing;
}
#endif

#ifdef GOODBYE
static int kept;

static void say(const char *what)
{
    int file = open(GOODBYE, O_WRONLY | O_APPEND);
    write(file, what, strlen(what));
    close(file);
}

static void let_go(zend_resource *resource)
{
    (void)resource;
    say("connection\n");
}

static PHP_MSHUTDOWN_FUNCTION(unfit)
{
    say("module\n");
    return SUCCESS;
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_keep, 0, 0, 0)
ZEND_END_ARG_INFO()

/* A persistent connection, as far as PHP is concerned. */
static PHP_FUNCTION(unfit_keep)
{
    static char connection;
    zend_register_persistent_resource("unfit", sizeof("unfit") - 1, &connection, kept);
}

static const zend_function_entry functions[] = {PHP_FE(unfit_keep, arginfo_keep) PHP_FE_END};
#define FUNCTIONS functions
#define MSHUTDOWN PHP_MSHUTDOWN(unfit)
#else
#define FUNCTIONS NULL
#define MSHUTDOWN NULL
#endif

static PHP_MINIT_FUNCTION(unfit)
{
#ifdef GOODBYE
    kept = zend_register_list_destructors_ex(NULL, let_go, "unfit", module_number);
#endif
#ifdef THREAD
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_ever, NULL);
#endif
#ifdef SOCKET
    socket(AF_UNIX, SOCK_STREAM, 0);
#endif
#ifdef MAPPED
    int file = open(MAPPED, O_RDWR | O_CREAT, 0666);
    ftruncate(file, 4096);
    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
#endif
    return SUCCESS;
}

zend_module_entry unfit_module_entry = {
    STANDARD_MODULE_HEADER, "unfit", FUNCTIONS, PHP_MINIT(unfit), MSHUTDOWN, NULL, NULL, NULL, "1", STANDARD_MODULE_PROPERTIES
};

ZEND_GET_MODULE(unfit)
