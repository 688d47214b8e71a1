/*
 * messages.c, part of shim.c: messages to the web server's error log and to standard error.
 */

static const char *level_name(enum forkyard_shim_level level)
{
    switch (level) {
    case FORKYARD_SHIM_DEBUG:
        return "DEBUG";
    case FORKYARD_SHIM_NOTICE:
        return "NOTICE";
    case FORKYARD_SHIM_WARNING:
        return "WARNING";
    default:
        return "ERROR";
    }
}

/* Writes a line to standard error: level, message, and a mark if it was cut. */
static void write_to_stderr(const char *level, const char *message, size_t length, const char *mark)
{
    struct iovec line[] = {
        {(char *)(level ? level : ""), level ? strlen(level) : 0},
        {": ", level ? 2 : 0},
        {(char *)message, length},
        {(char *)mark, strlen(mark)},
        {"\n", 1},
    };
    if (writev(STDERR_FILENO, line, sizeof(line) / sizeof(*line)) < 0) {
        /* Standard error is closed; there is no other place. */
    }
}

/* Writes to the web server's error log, and to standard error if that is read. Joins the messages of a request,
 * because a web server makes each record a line. As in php-fpm, log_level hides only this worker's own messages; for
 * PHP's it only omits the level. */
static void say(enum forkyard_shim_level level, bool is_of_php, const char *message, size_t length)
{
    const char *mark = "";
    bool is_wanted = level >= worker.log_level;
    size_t overhead = is_wanted ? LOG_LINE_OVERHEAD : 1;
    size_t limit = worker.log_limit > overhead + 3 ? worker.log_limit - overhead : 0;
    if (limit && length > limit) {
        length = limit - 3;
        mark = "...";
    }
    if (worker.stderr_caught && (is_wanted || is_of_php)) {
        write_to_stderr(is_wanted ? level_name(level) : NULL, message, length, mark);
    }
    if (!REQUEST() && !worker.stderr_caught && worker.log) {
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

static void say_formatted(enum forkyard_shim_level level, const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 2, 3);
static void say_formatted(enum forkyard_shim_level level, const char *format, ...)
{
    va_list arguments;
    char *message;
    va_start(arguments, format);
    size_t length = zend_vspprintf(&message, 0, format, arguments);
    va_end(arguments);
    say(level, false, message, length);
    efree(message);
}

static void on_log_message(const char *message, int syslog_type)
{
    (void)syslog_type;
    if (!api) {
        /* Module start-up: standard error is the preloader's, which the master reads. */
        fprintf(stderr, "%s\n", message);
        return;
    }
    char *line;
    size_t length = zend_spprintf(&line, 0, "PHP message: %s", message);
    say(FORKYARD_SHIM_NOTICE, true, line, length);
    efree(line);
}
