/*
 * push.c: a part of shim.c. forkyard_push(), by which a script pushes a background job: a line of JSON to the process that
 * keeps jobs. Each call has a connection of its own: nothing is left over from it in a process that is forked, or put back.
 */

#include <sys/socket.h>
#include <sys/un.h>

/* As the configuration's resolver has it. */
#define JOBS_VARIABLE "FORKYARD_JOBS"
/* How long the process may take to read a request, and to answer. */
#define PUSH_SECONDS 30
/* Far more than the answer to one job. */
#define ANSWER_BYTES 65536
#define ANSWER_DEPTH 8

static PHP_FUNCTION(forkyard_push);

static int connect_to_jobs(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = PUSH_SECONDS};
    if (strlen(path) >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno != EINTR) {
            int error = errno;
            close(fd);
            errno = error;
            return -1;
        }
    }
    return fd;
}

/* Sends a line, and reads one into the buffer: its length, or -1. */
static ssize_t converse(int fd, const char *line, size_t length, char *buffer)
{
    while (length > 0) {
        ssize_t sent = send(fd, line, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return -1;
        }
        line += sent;
        length -= (size_t)sent;
    }
    size_t have = 0;
    while (have == 0 || buffer[have - 1] != '\n') {
        ssize_t count = have < ANSWER_BYTES ? recv(fd, buffer + have, ANSWER_BYTES - have, 0) : 0;
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            errno = count < 0 ? errno : ECONNRESET;
            return -1;
        }
        have += (size_t)count;
    }
    return (ssize_t)have;
}

/* The number of the job in an answer; -1: the answer is another, and what it says is thrown. */
static zend_long pushed_job(char *text, size_t length)
{
    zval answer, *found = NULL;
    zend_long id = -1;
    if (!decode_json(&answer, text, length, ANSWER_DEPTH) || EG(exception)) {
        zend_clear_exception();
        zend_throw_exception(spl_ce_RuntimeException, "forkyard_push(): the answer is no JSON", 0);
        return -1;
    }
    if (Z_TYPE(answer) == IS_ARRAY && (found = zend_hash_str_find(Z_ARRVAL(answer), "jobs", sizeof("jobs") - 1)) &&
        Z_TYPE_P(found) == IS_ARRAY && (found = zend_hash_index_find(Z_ARRVAL_P(found), 0)) && Z_TYPE_P(found) == IS_ARRAY &&
        (found = zend_hash_str_find(Z_ARRVAL_P(found), "id", sizeof("id") - 1)) && Z_TYPE_P(found) == IS_LONG) {
        id = Z_LVAL_P(found);
    } else {
        found = Z_TYPE(answer) == IS_ARRAY ? zend_hash_str_find(Z_ARRVAL(answer), "message", sizeof("message") - 1) : NULL;
        const char *why = found && Z_TYPE_P(found) == IS_STRING ? Z_STRVAL_P(found) : "the answer is about something else";
        zend_throw_exception_ex(spl_ce_RuntimeException, 0, "forkyard_push(): %s", why);
    }
    zval_ptr_dtor(&answer);
    return id;
}

static PHP_FUNCTION(forkyard_push)
{
    zend_string *queue, *kind;
    zval *payload = NULL, *options = NULL, job, request;
    smart_str line = {0};

    ZEND_PARSE_PARAMETERS_START(2, 4)
        Z_PARAM_STR(queue)
        Z_PARAM_STR(kind)
        Z_PARAM_OPTIONAL
        Z_PARAM_ZVAL(payload)
        Z_PARAM_ARRAY(options)
    ZEND_PARSE_PARAMETERS_END();
    const char *path = getenv(JOBS_VARIABLE);
    if (!path) {
        zend_throw_exception(spl_ce_RuntimeException, "forkyard_push(): the daemon's configuration has no [jobs]", 0);
        RETURN_THROWS();
    }
    /* What is given as an argument wins over an option of its name. */
    if (options) {
        ZVAL_ARR(&job, zend_array_dup(Z_ARRVAL_P(options)));
    } else {
        array_init(&job);
    }
    add_assoc_str(&job, "queue", zend_string_copy(queue));
    add_assoc_str(&job, "kind", zend_string_copy(kind));
    if (payload && Z_TYPE_P(payload) != IS_NULL) {
        Z_TRY_ADDREF_P(payload);
        add_assoc_zval(&job, "payload", payload);
    }
    array_init(&request);
    add_assoc_string(&request, "command", "push");
    add_assoc_zval(&request, "job", &job);
    /* Without escapes the text is as short as it can be. */
    int encoded = php_json_encode(&line, &request, PHP_JSON_UNESCAPED_UNICODE | PHP_JSON_UNESCAPED_SLASHES);
    zval_ptr_dtor(&request);
    if (encoded != SUCCESS || EG(exception) || !line.s) {
        smart_str_free(&line);
        if (!EG(exception)) {
            zend_throw_exception(spl_ce_RuntimeException, "forkyard_push(): the job can't be written as JSON", 0);
        }
        RETURN_THROWS();
    }
    append(&line, "\n", 1);
    smart_str_0(&line);
    char *buffer = emalloc(ANSWER_BYTES + 1);
    int fd = connect_to_jobs(path);
    ssize_t length = fd < 0 ? -1 : converse(fd, ZSTR_VAL(line.s), ZSTR_LEN(line.s), buffer);
    if (length < 0) {
        zend_throw_exception_ex(spl_ce_RuntimeException, errno, "forkyard_push(): %s: %s", path, strerror(errno));
    } else {
        RETVAL_LONG(pushed_job(buffer, (size_t)length));
    }
    if (fd >= 0) {
        close(fd);
    }
    efree(buffer);
    smart_str_free(&line);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_push, 0, 2, IS_LONG, 0)
    ZEND_ARG_TYPE_INFO(0, queue, IS_STRING, 0)
    ZEND_ARG_TYPE_INFO(0, kind, IS_STRING, 0)
    ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, payload, IS_MIXED, 0, "null")
    ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, options, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

static const zend_function_entry push_functions[] = {
    PHP_FE(forkyard_push, arginfo_push)
    PHP_FE_END
};
