/*
 * messages.c: a part of shim.c. Messages: to the web server's error log, and to standard error.
 */

/* To the web server's error log, and to standard error where that is read. Messages of one request are joined,
 * since a web server makes a line of its own of each record. */
static void say(const char *level, const char *message, size_t length)
{
    const char *mark = "";
    size_t limit = worker.log_limit > LOG_LINE_OVERHEAD + 3 ? worker.log_limit - LOG_LINE_OVERHEAD : 0;
    if (limit && length > limit) {
        length = limit - 3;
        mark = "...";
    }
    if (worker.stderr_caught && level) {
        struct iovec line[] = {
            {(char *)level, strlen(level)}, {": ", 2}, {(char *)message, length}, {(char *)mark, strlen(mark)}, {"\n", 1},
        };
        if (writev(STDERR_FILENO, line, sizeof(line) / sizeof(*line)) < 0) {
            /* Standard error is gone, and there is no other place. */
        }
    }
    if (!REQUEST() && level && !worker.stderr_caught && worker.log) {
        /* A worker script between two requests. */
        worker.log(FORKYARD_SHIM_WARNING, message, length);
    }
    if (!sapi_ini.logging || !REQUEST() || has_finished || length == 0) {
        return;
    }
    if (has_logged) {
        api->write_error(REQUEST(), "; ", 2);
    }
    has_logged = true;
    ptrdiff_t written = api->write_error(REQUEST(), message, length);
    if (written >= 0 && *mark) {
        written = api->write_error(REQUEST(), mark, strlen(mark));
    }
    if (written < 0) {
        php_handle_aborted_connection();
    }
}

static void say_formatted(const char *level, const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 2, 3);
static void say_formatted(const char *level, const char *format, ...)
{
    va_list arguments;
    char *message;
    va_start(arguments, format);
    size_t length = zend_vspprintf(&message, 0, format, arguments);
    va_end(arguments);
    say(level, message, length);
    efree(message);
}

static void on_log_message(const char *message, int syslog_type)
{
    (void)syslog_type;
    if (!api) {
        /* Module start-up: standard error is the preloader's, and the master reads it. */
        fprintf(stderr, "%s\n", message);
        return;
    }
    say_formatted("NOTICE", "PHP message: %s", message);
}
