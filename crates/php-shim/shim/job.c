/*
 * job.c, part of shim.c: requests of background jobs, whose answer decides the job's result.
 *
 * Headers are sent with the first unbuffered output. A later failure could not change them, and the job would count
 * as done. So it is reported on the error stream, in a line that the job server knows.
 */

/* As in answer.rs of forkyard-jobs. */
#define LATE_VERDICT "Forkyard-Job-Late: "

static zif_handler header_of_php, response_code_of_php;

/* Clients can only send parameters whose names begin with HTTP_. */
static bool is_job(void)
{
    return PARAM("FORKYARD_JOB_ID") != NULL;
}

static void tell_late(const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 1, 2);
static void tell_late(const char *format, ...)
{
    va_list arguments;
    char *said, *line;
    va_start(arguments, format);
    zend_vspprintf(&said, 0, format, arguments);
    va_end(arguments);
    size_t length = zend_spprintf(&line, 0, "\n" LATE_VERDICT "%s\n", said);
    api->write_error(REQUEST(), line, length);
    efree(said);
    efree(line);
}

static bool is_too_late(void)
{
    return REQUEST() && SG(headers_sent) && !SG(request_info).no_headers && is_job();
}

static bool begins(const zval *text, const char *word)
{
    return strncasecmp(Z_STRVAL_P(text), word, strlen(word)) == 0;
}

static PHP_FUNCTION(forkyard_header)
{
    zval *line = ZEND_NUM_ARGS() > 0 ? ZEND_CALL_ARG(execute_data, 1) : NULL;
    if (line && Z_TYPE_P(line) == IS_STRING && is_too_late() &&
        (begins(line, "Forkyard-Job:") || begins(line, "Status:") || begins(line, "HTTP/"))) {
        tell_late("\"%s\"", Z_STRVAL_P(line));
    }
    header_of_php(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static PHP_FUNCTION(forkyard_http_response_code)
{
    zval *code = ZEND_NUM_ARGS() > 0 ? ZEND_CALL_ARG(execute_data, 1) : NULL;
    if (code && Z_TYPE_P(code) == IS_LONG && Z_LVAL_P(code) != 0 && is_too_late()) {
        tell_late("status " ZEND_LONG_FMT, Z_LVAL_P(code));
    }
    response_code_of_php(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

/* For a failure whose status can't be sent any more. */
static void tell_late_error(void)
{
    if (EG(exit_status) == 255 && is_too_late()) {
        tell_late("a fatal error");
    }
}

static zif_handler take_over(const char *name, zif_handler own)
{
    zend_internal_function *found = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
    if (!found || found->type != ZEND_INTERNAL_FUNCTION) {
        return NULL;
    }
    zif_handler before = found->handler;
    found->handler = own;
    return before;
}

static void watch_verdicts(void)
{
    header_of_php = take_over("header", zif_forkyard_header);
    response_code_of_php = take_over("http_response_code", zif_forkyard_http_response_code);
}
