/*
 * push.c: a part of shim.c. forkyard_push(), by which a script pushes a background job: a line of JSON to the process that
 * keeps jobs. Each call has a connection of its own: nothing is left over from it in a process that is forked, or put back.
 */

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

/* From PHP 8.6 on the code stands beside the error's line and column. */
#if PHP_VERSION_ID >= 80600
#define JSON_ERROR_CODE JSON_G(error_details).code
#else
#define JSON_ERROR_CODE JSON_G(error_code)
#endif

/* As the configuration's resolver has them. */
#define JOBS_VARIABLE "FORKYARD_JOBS"
#define TIMEOUT_VARIABLE "FORKYARD_JOBS_TIMEOUT"
/* How long a push may take where nothing is said, milliseconds. */
#define PUSH_MILLIS 2000
/* How often a job is pushed whose answer the end of the connection took away. */
#define PUSH_TRIES 3
/* Bytes of the name that a job is pushed with, which are written as twice as many digits. */
#define REF_BYTES 16
/* Far more than the answer to one job. */
#define ANSWER_BYTES 65536
#define ANSWER_DEPTH 8
/* How deep a payload may be, as json_encode() has it, and what is around it. */
#define PAYLOAD_DEPTH 512
#define REQUEST_DEPTH 2

/* Forkyard\PushUnknown: whether the job is stored is not known. */
static zend_class_entry *push_unknown;

static PHP_FUNCTION(forkyard_push);

static int64_t now_millis(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Lets what is done with the socket next wait until then; -1: that is over. */
static int wait_until(int fd, int64_t until)
{
    int64_t left = until - now_millis();
    if (left <= 0) {
        errno = ETIMEDOUT;
        return -1;
    }
    struct timeval patience = {.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return 0;
}

/* Whether a call is to be made again; if not, its error is in words that mean something. */
static bool is_interrupted(void)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS) {
        errno = ETIMEDOUT;
    }
    return errno == EINTR;
}

static int connect_to_jobs(const char *path, int64_t until)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    while (wait_until(fd, until) < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (!is_interrupted()) {
            int error = errno;
            close(fd);
            errno = error;
            return -1;
        }
    }
    return fd;
}

/* Sends a line, and reads one into the buffer: its length, or -1. `is_sent`: the process may have read it. */
static ssize_t converse(int fd, const char *line, size_t length, char *buffer, int64_t until, bool *is_sent)
{
    while (length > 0) {
        ssize_t sent = wait_until(fd, until) < 0 ? -1 : send(fd, line, length, MSG_NOSIGNAL);
        if (sent < 0 && is_interrupted()) {
            continue;
        }
        if (sent < 0) {
            return -1;
        }
        line += sent;
        length -= (size_t)sent;
    }
    *is_sent = true;
    size_t have = 0;
    while (have == 0 || buffer[have - 1] != '\n') {
        ssize_t count = -1;
        if (wait_until(fd, until) == 0) {
            count = have < ANSWER_BYTES ? recv(fd, buffer + have, ANSWER_BYTES - have, 0) : 0;
        }
        if (count < 0 && is_interrupted()) {
            continue;
        }
        if (count <= 0) {
            errno = count < 0 ? errno : ECONNRESET;
            return -1;
        }
        have += (size_t)count;
    }
    buffer[have] = 0;
    return (ssize_t)have;
}

/* The same over a connection of its own, and over another where the process was replaced: the job has a name by which it is known
 * again. */
static ssize_t ask(const char *path, const smart_str *line, char *buffer, int64_t until, bool *is_sent)
{
    ssize_t length = -1;
    for (int tries = 0; length < 0 && tries < PUSH_TRIES; tries++) {
        int fd = connect_to_jobs(path, until);
        if (fd < 0) {
            return -1;
        }
        length = converse(fd, ZSTR_VAL(line->s), ZSTR_LEN(line->s), buffer, until, is_sent);
        int error = errno;
        close(fd);
        errno = error;
        if (errno == ETIMEDOUT) {
            break;
        }
    }
    return length;
}

/* What is told where it is not known whether the job is stored, with the name by which it can be pushed again. */
static void throw_unknown(const char *ref, const char *why)
{
    zend_object *exception = zend_throw_exception_ex(push_unknown, 0, "forkyard_push(): %s", why);
    zend_update_property_string(push_unknown, exception, "ref", sizeof("ref") - 1, ref);
}

/* A name that no other job has. */
static void make_ref(char text[2 * REF_BYTES + 1])
{
    unsigned char bytes[REF_BYTES];
    while (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        slprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
}

/* An option; NULL: it is missing, or null. */
static zval *find_option(zval *job, const char *name)
{
    zval *found = zend_hash_str_find(Z_ARRVAL_P(job), name, strlen(name));
    if (found) {
        ZVAL_DEREF(found);
    }
    return found && Z_TYPE_P(found) != IS_NULL ? found : NULL;
}

/* The time limit of the call, milliseconds; -1: the option is no time, and an exception is thrown. */
static int64_t push_millis(zval *job)
{
    zval *own = find_option(job, "push_timeout");
    if (!own) {
        zend_hash_str_del(Z_ARRVAL_P(job), "push_timeout", sizeof("push_timeout") - 1);
        const char *text = getenv(TIMEOUT_VARIABLE);
        int64_t millis = text ? atoll(text) : 0;
        return millis > 0 ? millis : PUSH_MILLIS;
    }
    double seconds = Z_TYPE_P(own) == IS_LONG || Z_TYPE_P(own) == IS_DOUBLE ? zval_get_double(own) : 0;
    zend_hash_str_del(Z_ARRVAL_P(job), "push_timeout", sizeof("push_timeout") - 1);
    if (!(seconds > 0 && seconds < 1e6)) {
        zend_value_error("forkyard_push(): push_timeout is a number of seconds above 0");
        return -1;
    }
    return (int64_t)(seconds * 1000) + 1;
}

/* The number of the job in an answer; -1: the answer is another, and what it says is thrown. */
static zend_long pushed_job(char *text, size_t length, const char *ref)
{
    zval answer, *found = NULL;
    zend_long id = -1;
    if (!decode_json(&answer, text, length, ANSWER_DEPTH) || EG(exception)) {
        zend_clear_exception();
        throw_unknown(ref, "the answer is no JSON; whether the job is stored is not known");
        return -1;
    }
    if (Z_TYPE(answer) == IS_ARRAY && (found = zend_hash_str_find(Z_ARRVAL(answer), "jobs", sizeof("jobs") - 1)) &&
        Z_TYPE_P(found) == IS_ARRAY && (found = zend_hash_index_find(Z_ARRVAL_P(found), 0)) && Z_TYPE_P(found) == IS_ARRAY &&
        (found = zend_hash_str_find(Z_ARRVAL_P(found), "id", sizeof("id") - 1)) && Z_TYPE_P(found) == IS_LONG) {
        id = Z_LVAL_P(found);
    } else {
        found = Z_TYPE(answer) == IS_ARRAY ? zend_hash_str_find(Z_ARRVAL(answer), "message", sizeof("message") - 1) : NULL;
        const char *why = found && Z_TYPE_P(found) == IS_STRING ? Z_STRVAL_P(found) : "the answer is about something else";
        found = Z_TYPE(answer) == IS_ARRAY ? zend_hash_str_find(Z_ARRVAL(answer), "is_unknown", sizeof("is_unknown") - 1) : NULL;
        if (found && Z_TYPE_P(found) == IS_TRUE) {
            throw_unknown(ref, why);
        } else {
            zend_throw_exception_ex(spl_ce_RuntimeException, 0, "forkyard_push(): %s", why);
        }
    }
    zval_ptr_dtor(&answer);
    return id;
}

/* Appends a request as a line of JSON. Returns false if that throws: an exception of the application's own code passes through. */
static bool encode_request(smart_str *line, zval *request)
{
    /* json_last_error() is the application's. */
    php_json_error_code before = JSON_ERROR_CODE;
    /* Without escapes the text is as short as it can be. */
    int options = PHP_JSON_UNESCAPED_UNICODE | PHP_JSON_UNESCAPED_SLASHES;
    zend_result encoded = php_json_encode_ex(line, request, options, PAYLOAD_DEPTH + REQUEST_DEPTH);
    /* It succeeds where it has written a number or a key as something else. */
    if (!EG(exception) && (encoded != SUCCESS || JSON_ERROR_CODE != PHP_JSON_ERROR_NONE)) {
        zval name, why;
        ZVAL_UNDEF(&why);
        ZVAL_STRING(&name, "json_last_error_msg");
        call_user_function(NULL, NULL, &name, &why, 0, NULL);
        zval_ptr_dtor(&name);
        zend_throw_exception_ex(spl_ce_RuntimeException, 0, "forkyard_push(): the job can't be written as JSON: %s",
                                Z_TYPE(why) == IS_STRING ? Z_STRVAL(why) : "a value has no form there");
        zval_ptr_dtor(&why);
    }
    JSON_ERROR_CODE = before;
    if (EG(exception)) {
        return false;
    }
    append(line, "\n", 1);
    smart_str_0(line);
    return true;
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
    int64_t millis = push_millis(&job);
    if (millis < 0) {
        zval_ptr_dtor(&job);
        RETURN_THROWS();
    }
    char own_ref[2 * REF_BYTES + 1] = "";
    zval *given = find_option(&job, "ref");
    if (!given) {
        make_ref(own_ref);
        add_assoc_string(&job, "ref", own_ref);
    }
    /* What is no text is refused. */
    char *ref = estrdup(given && Z_TYPE_P(given) == IS_STRING ? Z_STRVAL_P(given) : own_ref);
    array_init(&request);
    add_assoc_string(&request, "command", "push");
    add_assoc_zval(&request, "job", &job);
    /* So that the process says what it knows before the time is over. */
    add_assoc_long(&request, "timeout_ms", (zend_long)(millis - millis / 8));
    bool is_encoded = encode_request(&line, &request);
    zval_ptr_dtor(&request);
    if (!is_encoded) {
        smart_str_free(&line);
        efree(ref);
        RETURN_THROWS();
    }
    char *buffer = emalloc(ANSWER_BYTES + 1);
    bool is_sent = false;
    ssize_t length = ask(path, &line, buffer, now_millis() + millis, &is_sent);
    if (length >= 0) {
        RETVAL_LONG(pushed_job(buffer, (size_t)length, ref));
    } else if (is_sent) {
        char *why;
        zend_spprintf(&why, 0, "%s: %s; whether the job is stored is not known", path, strerror(errno));
        throw_unknown(ref, why);
        efree(why);
    } else {
        zend_throw_exception_ex(spl_ce_RuntimeException, errno, "forkyard_push(): %s: %s", path, strerror(errno));
    }
    efree(buffer);
    efree(ref);
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

static int register_push(void)
{
    zend_class_entry unknown;
    INIT_CLASS_ENTRY(unknown, "Forkyard\\PushUnknown", NULL);
    push_unknown = zend_register_internal_class_ex(&unknown, spl_ce_RuntimeException);
    zend_declare_property_string(push_unknown, "ref", sizeof("ref") - 1, "", ZEND_ACC_PUBLIC);
    return zend_register_functions(NULL, push_functions, NULL, MODULE_PERSISTENT);
}
