/*
 * worker_script.c, part of shim.c: an application that boots once.
 *
 * A worker script runs in the preloader up to its first forkyard_handle_request(). There the preloader forks
 * workers, and each returns from this call with a request. The whole script is one request of PHP. Each client's
 * request has its own input, output, headers, session and time limit inside it, while variables, classes and
 * settings stay.
 *
 * The order of calls is that of php_request_startup() and php_request_shutdown(). A fatal error jumps to where the
 * script was started (longjmp(3)) and PHP's stack is lost, so the worker completes the request's shutdown and exits.
 */

/* Weak: PHP can be built without sessions. */
extern php_ps_globals ps_globals __attribute__((weak));

static bool has_asked;
static bool is_handling;
/* The script's current request. */
static struct forkyard_shim_request handled;
/* The open worker script; NULL: closed. */
static zend_file_handle *script_file;
static mode_t boot_umask;
/* The last request for work in the preloader; in workers, the end of the boot. */
static struct timeval booted;
static bool is_in_worker;
/* Objects from here on are younger than the snapshot. */
static uint32_t first_young_object = 1;
/* Requests of the worker, including the current one. */
static zend_long request_count;
/* Why each request boots the application; NULL: it boots once. */
static zend_string *boots_again;
/* Values at the end of the boot: seconds of set_time_limit(), and ignore_user_abort(). */
static zend_long boot_time_limit;
static bool boot_ignores_abort;

/* Extensions with state of a request, which the next must not see. */
static const char *const renewed[] = {"session", "filter", "zlib", "json"};
#define RENEWED (sizeof(renewed) / sizeof(*renewed))

static void close_script_file(void)
{
    if (script_file) {
        zend_destroy_file_handle(script_file);
        script_file = NULL;
    }
}

static void renew_modules(bool is_begin)
{
    for (size_t i = 0; i < RENEWED; i++) {
        zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, renewed[i], strlen(renewed[i]));
        zend_result (*renew)(int, int) = NULL;
        if (module) {
            renew = is_begin ? module->request_startup_func : module->request_shutdown_func;
        }
        if (renew) {
            renew(module->type, module->module_number);
        }
    }
}

/* Ends the session and forgets its data and id. The functions of session_set_save_handler() belong to the
 * application. */
static void end_modules(void)
{
    zval kept[sizeof(ps_globals.mod_user_names) / sizeof(zval)];
    bool has_sessions = &ps_globals != NULL;
    if (has_sessions && PS(session_status) == php_session_active) {
        php_session_flush(1);
    }
    if (has_sessions) {
        memcpy(kept, &PS(mod_user_names), sizeof(kept));
        /* Frees nothing: a zeroed zval is undefined. */
        memset(&PS(mod_user_names), 0, sizeof(kept));
    }
    renew_modules(false);
    if (has_sessions) {
        memcpy(&PS(mod_user_names), kept, sizeof(kept));
    }
    zend_hash_str_del(&EG(symbol_table), "_SESSION", sizeof("_SESSION") - 1);
}

/* PHP closes these with the request whose body they read, without a reference to it. */
static void close_body(php_stream *body)
{
    zend_resource *resource;
    if (!body) {
        return;
    }
    ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
        if (resource->type != php_file_le_stream()) {
            continue;
        }
        php_stream *stream = resource->ptr;
        if (stream && stream != body && strcmp(stream->ops->label, "Input") == 0) {
            zend_list_close(resource);
        }
    } ZEND_HASH_FOREACH_END();
    if (body->res && GC_REFCOUNT(body->res) <= 1) {
        zend_list_delete(body->res);
    }
}

static void forget_script_path(void)
{
    if (SG(request_info).path_translated) {
        efree(SG(request_info).path_translated);
        SG(request_info).path_translated = NULL;
    }
}

/* Its texts are about to be freed. */
static void forget_request_info(void)
{
    SG(request_info).request_method = NULL;
    SG(request_info).query_string = NULL;
    SG(request_info).request_uri = NULL;
    SG(request_info).content_type = NULL;
    SG(request_info).cookie_data = NULL;
    SG(request_info).content_length = 0;
    forget_script_path();
    SG(server_context) = NULL;
    serving = NULL;
}

/* Text added to links and forms. Everything except the set of tags belongs to the request. */
static void forget_rewriting(url_adapt_state_ex_t *state)
{
    if (!state->active && !state->form_app.s && !state->url_app.s) {
        return;
    }
    smart_str_free(&state->result);
    smart_str_free(&state->buf);
    smart_str_free(&state->tag);
    smart_str_free(&state->arg);
    smart_str_free(&state->attr_val);
    smart_str_free(&state->form_app);
    smart_str_free(&state->url_app);
    memset(state, 0, offsetof(url_adapt_state_ex_t, tags));
}

/* State that PHP and its extensions drop at the end of a request, outside module shutdown functions. */
static void forget_leftovers(void)
{
    zval result;
    if (BG(strtok_string)) {
        zend_string_release(BG(strtok_string));
        BG(strtok_string) = NULL;
    }
    forget_rewriting(&BG(url_adapt_output_ex));
    forget_rewriting(&BG(url_adapt_session_ex));
    ZVAL_UNDEF(&result);
    call_function_of("libxml", "libxml_clear_errors", &result, 0, NULL);
}

static void set_long(const char *name, zend_long value)
{
    zend_string *key = zend_string_init(name, strlen(name), 0);
    zend_string *text = zend_long_to_str(value);
    zend_alter_ini_entry(key, text, PHP_INI_SYSTEM, PHP_INI_STAGE_RUNTIME);
    zend_string_release(text);
    zend_string_release(key);
}

/* Requests may change these for themselves. */
static void restore_limits(void)
{
    if (EG(timeout_seconds) != boot_time_limit) {
        set_long("max_execution_time", boot_time_limit);
    }
    if (PG(ignore_user_abort) != boot_ignores_abort) {
        set_long("ignore_user_abort", boot_ignores_abort);
    }
}

/* error_get_last() concerns this request. */
static void forget_last_error(void)
{
    if (!PG(last_error_message)) {
        return;
    }
    zend_string_release(PG(last_error_message));
    PG(last_error_message) = NULL;
    if (PG(last_error_file)) {
        zend_string_release(PG(last_error_file));
        PG(last_error_file) = NULL;
    }
    PG(last_error_type) = 0;
    PG(last_error_lineno) = 0;
}

static void end_request_in_script(void)
{
    php_output_end_all();
    zend_unset_timeout();
    end_modules();
    forget_leftovers();
    php_output_deactivate();
    php_stream *body = SG(request_info).request_body;
    sapi_deactivate();
    close_body(body);
    if (body_file >= 0) {
        close(body_file);
        body_file = -1;
    }
    forget_request_info();
    forget_last_error();
    zend_set_memory_limit(PG(memory_limit));
    /* Between requests the script may buffer output, which has no headers. */
    php_output_activate();
    SG(request_info).no_headers = 1;
}

/* Ends the request in which the script was started; its output is in the log. */
static void end_boot(void)
{
    end_request_in_script();
    boot_umask = umask(0);
    umask(boot_umask);
    boot_time_limit = EG(timeout_seconds);
    boot_ignores_abort = PG(ignore_user_abort);
}

/* Compiled code does not recreate superglobals that are created at first use. */
static void renew_superglobals(void)
{
    zend_auto_global *global;
    ZEND_HASH_FOREACH_PTR(CG(auto_globals), global) {
        /* The environment belongs to the process. */
        if (global->auto_global_callback && !zend_string_equals_literal(global->name, "_ENV")) {
            global->armed = global->auto_global_callback(global->name);
        }
    } ZEND_HASH_FOREACH_END();
}

static void forget_superglobal(int which)
{
    zval_ptr_dtor_nogc(&PG(http_globals)[which]);
    ZVAL_UNDEF(&PG(http_globals)[which]);
}

static void begin_output(void)
{
    if (PG(expose_php)) {
        char header[64];
        slprintf(header, sizeof(header), "X-Powered-By: PHP/%s", php_release());
        sapi_add_header(header, strlen(header), 1);
    }
    const char *handler = TEXT_OF_SETTING(PG(output_handler));
    if (handler && *handler) {
        zval name;
        ZVAL_STRING(&name, handler);
        php_output_start_user(&name, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
        zval_ptr_dtor(&name);
    } else if (PG(output_buffering)) {
        php_output_start_user(NULL, PG(output_buffering) > 1 ? PG(output_buffering) : 0, PHP_OUTPUT_HANDLER_STDFLAGS);
    } else if (PG(implicit_flush)) {
        php_output_set_implicit_flush(1);
    }
}

static bool has_input_time(void)
{
    return PG(max_input_time) != -1 && has_body();
}

static void read_request(void)
{
    set_request_info(serving);
    sapi_activate();
    /* After the point where .user.ini files would have been read. */
    SG(request_info).path_translated = estrdup(worker_script->path);
    zend_set_timeout(has_input_time() ? PG(max_input_time) : EG(timeout_seconds), !is_rewinding);
    begin_output();
    renew_superglobals();
    renew_modules(true);
}

/* PHP reads a request before the script runs. Warnings about it name no line, and the application's error handler
 * and error_reporting() do not apply. */
static void read_request_as_php(void)
{
    zval handler;
    volatile bool has_failed = false;
    int reported = EG(error_reporting);
    zend_execute_data *frame = EG(current_execute_data);
    EG(current_execute_data) = NULL;
    ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
    ZVAL_UNDEF(&EG(user_error_handler));
    const char *configured = zend_ini_string_ex("error_reporting", sizeof("error_reporting") - 1, 1, NULL);
    EG(error_reporting) = configured ? atoi(configured) : E_ALL;
    zend_try {
        read_request();
    } zend_catch {
        has_failed = true;
    } zend_end_try();
    ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
    EG(error_reporting) = reported;
    EG(current_execute_data) = frame;
    if (has_failed) {
        zend_bailout();
    }
}

/* The previous request's objects in them are destroyed before the answer starts, so that destructors can't print to
 * it. */
static void empty_superglobals(void)
{
    static const char *const names[] = {"_GET", "_POST", "_COOKIE", "_FILES", "_REQUEST", "_SERVER"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        zval empty;
        if (zend_hash_str_exists(&EG(symbol_table), names[i], strlen(names[i]))) {
            ZVAL_EMPTY_ARRAY(&empty);
            zend_hash_str_update(&EG(symbol_table), names[i], strlen(names[i]), &empty);
        }
    }
    forget_superglobal(TRACK_VARS_FILES);
    forget_superglobal(TRACK_VARS_SERVER);
    if (EG(exception)) {
        zend_exception_error(EG(exception), E_WARNING);
    }
}

static void begin_request_in_script(forkyard_request *request)
{
    empty_superglobals();
    serving = &handled;
    SG(server_context) = request;
    has_logged = false;
    has_finished = false;
    sent_status = 0;
    EG(exit_status) = 0;
    forget_last_error();
    if (&ps_globals != NULL && PS(session_status) == php_session_active) {
        /* The script started one between two requests. */
        end_modules();
    }
    if (!is_rewinding) {
        if (home_directory >= 0) {
            php_ignore_value(fchdir(home_directory));
        }
        umask(boot_umask);
    }
    restore_limits();
    zend_memory_reset_peak_usage();

    php_output_discard_all();
    php_output_deactivate();
    PG(during_request_startup) = 1;
    php_output_activate();
    PG(header_is_being_sent) = 0;
    PG(connection_status) = PHP_CONNECTION_NORMAL;
    read_request_as_php();
    SG(sapi_started) = 1;
    PG(during_request_startup) = 0;
    if (has_input_time()) {
        zend_set_timeout(zend_ini_long("max_execution_time", sizeof("max_execution_time") - 1, 0), 0);
    }
}

#include "worker_end.c"

static bool call_all(zval *functions);
static bool call_after_snapshot(void);
static void add_facts(zval *array);
static int next_request(forkyard_request **request);
static void go_back(void);

/* Calls the handler. Returns false if the script must end. */
static bool handle(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
    zval result;
    note_functions_that_hold();
    ZVAL_UNDEF(&result);
    handler->retval = &result;
    handler->params = NULL;
    handler->param_count = 0;
    api->set_stage(REQUEST(), FORKYARD_STAGE_EXECUTING);
    if (call_after_snapshot()) {
        zend_call_function(handler, cache);
    }
    leave_if_fatal();
    EG(current_execute_data) = NULL;
    enum outcome outcome = EG(exception) ? settle_exception() : RETURNED;
    leave_if_fatal();
    zval_ptr_dtor(&result);
    if (ends_script(outcome)) {
        return false;
    }
    if (is_rewinding) {
        /* The end of the script ends the request. */
        return true;
    }
    add_error_header();
    tell_late_error();
    api->set_memory(REQUEST(), zend_memory_peak_usage(1));
    api->set_stage(REQUEST(), FORKYARD_STAGE_END);
    if (is_in_worker) {
        call_functions_of_request();
    }
    return true;
}

/* If workers can't be rewound, each request runs the whole script. */
static void handle_in_ordinary_request(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
    zval result;
    if (has_answered) {
        zend_throw_unwind_exit();
        return;
    }
    has_answered = true;
    request_count++;
    gettimeofday(&booted, NULL);
    ZVAL_UNDEF(&result);
    handler->retval = &result;
    handler->params = NULL;
    handler->param_count = 0;
    if (call_all(&after_snapshot)) {
        zend_call_function(handler, cache);
    }
    zval_ptr_dtor(&result);
}

static PHP_FUNCTION(forkyard_handle_request)
{
    zend_fcall_info handler;
    zend_fcall_info_cache cache;
    forkyard_request *request = NULL;

    ZEND_PARSE_PARAMETERS_START(1, 1)
        Z_PARAM_FUNC(handler, cache)
    ZEND_PARSE_PARAMETERS_END();
    if (!worker_script) {
        handle_in_ordinary_request(&handler, &cache);
        RETURN_FALSE;
    }
    if (is_handling && !has_answered) {
        zend_throw_error(NULL, "forkyard_handle_request() can't be called while it handles a request");
        RETURN_THROWS();
    }
    if (!has_asked) {
        end_boot();
        has_asked = true;
    }
    if (has_answered) {
        /* The script ignores the result. */
        zend_throw_unwind_exit();
        RETURN_THROWS();
    }
    if (!is_in_worker) {
        gettimeofday(&booted, NULL);
    }
    if (!next_request(&request)) {
        RETURN_FALSE;
    }
    is_handling = true;
    request_count++;
    begin_request_in_script(request);
    /* What runs after the handler has no caller, as at the end of PHP's requests: an exception there is an error of
     * this request, not of the script. */
    zend_execute_data *frame = EG(current_execute_data);
    bool goes_on = handle(&handler, &cache);
    has_answered = is_rewinding;
    if (goes_on && !is_rewinding) {
        end_request_in_script();
        is_ending = is_handling = false;
    }
    EG(current_execute_data) = frame;
    if (!goes_on) {
        zend_throw_unwind_exit();
        RETURN_THROWS();
    }
    RETURN_BOOL(!is_rewinding);
}

static PHP_FUNCTION(forkyard_worker)
{
    ZEND_PARSE_PARAMETERS_NONE();
    bool has_booted = worker_script ? is_in_worker : has_answered;
    array_init(return_value);
    add_assoc_string(return_value, "mode", worker_script ? worker_script->mode : "ordinary");
    if (boots_again) {
        add_assoc_stringl(return_value, "because", ZSTR_VAL(boots_again), ZSTR_LEN(boots_again));
    }
    add_assoc_bool(return_value, "is_booting", !has_booted);
    if (has_booted) {
        add_assoc_double(return_value, "booted", (double)booted.tv_sec + (double)booted.tv_usec / 1000000);
    } else {
        add_assoc_null(return_value, "booted");
    }
    add_assoc_long(return_value, "requests", request_count);
    add_facts(return_value);
}

/* PHP is inside a request, so its own handlers are where it just looked for earlier ones. */
static void take_over_signals(void)
{
#ifdef ZEND_SIGNALS
    static const int signals[] = {SIGPROF, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0) {
            zend_sigaction(signals[i], &action, NULL);
        }
    }
    SIGG(active) = 1;
#endif
}

static void go_on_in_worker(void)
{
    take_over_signals();
    is_in_worker = true;
    request_count = 0;
    php_clear_stat_cache(0, NULL, 0);
}

/* --- the requests of the preloader --- */

static struct forkyard_shim_boot_request *boot_of(const forkyard_request *request)
{
    return (struct forkyard_shim_boot_request *)request;
}

static size_t boot_param_count(const forkyard_request *request)
{
    return boot_of(request)->count;
}

static int boot_param_at(const forkyard_request *request, size_t index, struct forkyard_text *name,
                         struct forkyard_text *value)
{
    if (index >= boot_of(request)->count) {
        return 0;
    }
    *name = text(boot_of(request)->params[index].name);
    *value = text(boot_of(request)->params[index].value);
    return 1;
}

static int boot_param(const forkyard_request *request, const char *name, size_t length, struct forkyard_text *value)
{
    for (size_t i = 0; i < boot_of(request)->count; i++) {
        const struct forkyard_shim_pair *pair = &boot_of(request)->params[i];
        if (strlen(pair->name) == length && memcmp(pair->name, name, length) == 0) {
            *value = text(pair->value);
            return 1;
        }
    }
    return 0;
}

static ptrdiff_t boot_read_body(forkyard_request *request, void *buffer, size_t length)
{
    return 0;
}

static ptrdiff_t boot_write(forkyard_request *request, const void *bytes, size_t length)
{
    boot_of(request)->write(boot_of(request)->context, bytes, length);
    return (ptrdiff_t)length;
}

/* Already written to standard error. */
static ptrdiff_t boot_write_error(forkyard_request *request, const void *bytes, size_t length)
{
    return (ptrdiff_t)length;
}

static int boot_flush(forkyard_request *request)
{
    return 0;
}

static int boot_finish(forkyard_request *request)
{
    boot_of(request)->is_finished = 1;
    return 0;
}

static int boot_is_finished(const forkyard_request *request)
{
    return boot_of(request)->is_finished;
}

static void boot_set_stage(forkyard_request *request, uint32_t stage)
{
}

static void boot_describe(forkyard_request *request, const struct forkyard_description *description)
{
}

static void boot_set_memory(forkyard_request *request, uint64_t bytes)
{
}

static const struct forkyard_api boot_api = {
    .version = 1,
    .size = sizeof(boot_api),
    .param_count = boot_param_count,
    .param_at = boot_param_at,
    .param = boot_param,
    .read_body = boot_read_body,
    .write = boot_write,
    .write_error = boot_write_error,
    .flush = boot_flush,
    .finish = boot_finish,
    .is_finished = boot_is_finished,
    .set_stage = boot_set_stage,
    .describe = boot_describe,
    .set_memory = boot_set_memory,
    .end = boot_finish,
};

#include "worker_snapshot.c"

/* --- the script --- */

static void execute_worker_script(void)
{
    zend_file_handle file = {0};
    SG(request_info).path_translated = estrdup(worker_script->path);
    errno = 0;
    if (php_fopen_primary_script(&file) == FAILURE) {
        php_error_docref(NULL, E_ERROR, "Unable to open the worker script %s: %s", worker_script->path, strerror(errno));
        return;
    }
    script_file = &file;
    php_execute_script(&file);
    close_script_file();
}

static void tell_end(void)
{
    /* An uncaught exception is an error without a jump. */
    bool has_failed = CG(unclean_shutdown) || (PG(last_error_message) && (PG(last_error_type) & E_FATAL_ERRORS));
    struct forkyard_shim_end end = {.has_asked = has_asked, .has_failed = has_failed};
    end.is_aborted = is_handling && (PG(connection_status) & PHP_CONNECTION_ABORTED) != 0;
    if (has_failed && PG(last_error_message)) {
        end.message = ZSTR_VAL(PG(last_error_message));
        end.file = PG(last_error_file) ? ZSTR_VAL(PG(last_error_file)) : NULL;
        end.line = (uint32_t)PG(last_error_lineno);
    }
    worker_script->ended(worker_script->context, &end);
}

static int run_worker_script(void)
{
    set_request_info(serving);
    if (php_request_startup() == FAILURE) {
        return -1;
    }
    SG(request_info).no_headers = 1;
    zend_try {
        execute_worker_script();
    } zend_end_try();
    zend_try {
        if (is_handling) {
            add_error_header();
            tell_late_error();
            api->set_memory(REQUEST(), zend_memory_peak_usage(1));
            api->set_stage(REQUEST(), FORKYARD_STAGE_END);
        }
        tell_end();
    } zend_end_try();
    if (is_rewinding) {
        go_back();
        return 0;
    }
    forget_late_failure();
    forget_script_path();
    php_request_shutdown(NULL);
    return 0;
}

EXPORT void forkyard_shim_boots_again(const char *why, size_t length)
{
    boots_again = zend_string_init(why, length, 1);
}

EXPORT uint64_t forkyard_shim_heap_bytes(void)
{
    return zend_memory_usage(1);
}

EXPORT int forkyard_shim_run_script(const struct forkyard_shim_script *given)
{
    volatile int result = -1;
    worker_script = given;
    find_delayed_oom();
    take_over_opcache();
    worker.stderr_caught = 1;
    api = &boot_api;
    take_over_environment();
    handled = (struct forkyard_shim_request){.content_type = "", .status = 200};
    serving = &handled;
    SG(server_context) = given->boot;
    zend_first_try {
        result = run_worker_script();
    } zend_end_try();
    SG(server_context) = NULL;
    serving = NULL;
    return result;
}
