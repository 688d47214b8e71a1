/*
 * shim.c: php-fpm's server API over forkyard.h.
 *
 * It is C because most of PHP's embedding API is macros, and because fatal errors, timeouts and disconnected clients
 * leave PHP by longjmp: every jump starts and lands in this file or in libphp, and the Rust functions called here
 * always return.
 */
#include "php.h"

#ifdef ZTS
#error "forkyard runs PHP in processes, not threads: it needs a PHP without ZTS"
#endif
#if PHP_VERSION_ID < 80200
#error "PHP 8.2 or later is needed"
#endif

#include "SAPI.h"
#include "ext/json/php_json.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/head.h"
#include "ext/standard/info.h"
#include "ext/standard/php_filestat.h"
#include "ext/standard/url_scanner_ex.h"
#include "ext/spl/spl_exceptions.h"
#include "ext/random/php_random.h"
#include "fopen_wrappers.h"
#include "http_status_codes.h"
#include "php_ini.h"
#include "zend_extensions.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "zend_closures.h"
#include "zend_constants.h"
#include "zend_exceptions.h"
#include "zend_ini_scanner.h"
#include "zend_smart_str.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shim.h"

#define EXPORT __attribute__((visibility("default")))

/* PHP 8.6 keeps the text of a setting as a zend_string, older versions as a C string. */
#if PHP_VERSION_ID >= 80600
#define TEXT_OF_SETTING(setting) ((setting) ? ZSTR_VAL(setting) : NULL)
#else
#define TEXT_OF_SETTING(setting) (setting)
#endif

/* php-fpm's length of a status line, including the final NUL. */
#define STATUS_LINE_SIZE 1024
/* php-fpm reserves this much of a line for the level ("NOTICE: ") and the newline. */
#define LOG_LINE_OVERHEAD 9

struct sapi_ini {
    bool rfc2616_headers;
    bool nph;
    bool fix_pathinfo;
    bool discard_path;
    bool script_path_encoded;
    bool logging;
    char *error_header;
    char *fpm_config;
};

/* An ini entry changed by a request's PHP_VALUE or PHP_ADMIN_VALUE. */
struct ini_change {
    struct ini_change *earlier;
    zend_ini_entry *entry;
    zend_string *before;
    zend_string *during;
    uint8_t modifiable;
};

/* A function disabled by a request's disable_functions. */
struct disabled_function {
    struct disabled_function *earlier;
    zend_internal_function *function;
    zif_handler handler;
    zend_string *name; /* NULL: it is still in the table */
};

/* The .user.ini values of one directory. */
struct user_config {
    time_t expires;
    HashTable values;
};

static struct sapi_ini sapi_ini;
static struct forkyard_shim_worker worker;
static const struct forkyard_api *api;
static HashTable user_configs;
static void (*import_process_environment)(zval *array);

static const struct forkyard_shim_request *serving;
static struct ini_change *ini_changes;
static struct disabled_function *disabled_functions;
/* A name that is never found: no function's name starts with a zero byte. */
static zend_string *no_name;
static uint32_t compiler_options;
/* Disabled before opcache.preload compiles anything. */
static const char *disabled_by_pool;
static const struct forkyard_shim_ini_names *ini_names;
static int body_file = -1;
/* The worker's directory between two scripts; negative: PHP returns by itself. */
static int home_directory = -1;
static bool has_logged;
/* The script has ended its answer and continues; further output is dropped. */
static bool has_finished;
/* The response code sent with the headers; 0: not sent. */
static int sent_status;
static bool has_served;
/* The script of an application that boots once, or NULL. */
static const struct forkyard_shim_script *worker_script;
static bool has_worker_functions;
static bool has_push_function;
/* The worker is rewound after each request, and has had its request. */
static bool is_rewinding, has_answered;
/* The script's callbacks before and after the snapshot. */
static zval before_snapshot, after_snapshot;

#define REQUEST() ((forkyard_request *)SG(server_context))

static char *param(const char *name, size_t length)
{
    struct forkyard_text value;
    if (REQUEST() && api->param(REQUEST(), name, length, &value)) {
        return (char *)value.data;
    }
    return NULL;
}

#define PARAM(name) param(name, sizeof(name) - 1)

#include "json.c"

/* smart_str_appendl() without inlining: in the headers of a security release it calls a function that earlier
 * releases of the same version lack. */
static void append(smart_str *out, const char *bytes, size_t length)
{
    size_t before = out->s ? ZSTR_LEN(out->s) : 0, after = before + length;
    if (!out->s || after >= out->a) {
        smart_str_erealloc(out, after);
    }
    memcpy(ZSTR_VAL(out->s) + before, bytes, length);
    ZSTR_LEN(out->s) = after;
}

/* The running release, which may differ from that of the headers. */
static const char *php_release(void)
{
    zend_module_entry *standard = zend_hash_str_find_ptr(&module_registry, "standard", sizeof("standard") - 1);
    return standard && standard->version ? standard->version : PHP_VERSION;
}

static const char *ini_text(const char *name)
{
    return zend_ini_string_ex(name, strlen(name), 0, NULL);
}

#include "messages.c"
#include "output.c"
#include "input.c"
#include "user_ini.c"
#include "likeness.c"
#include "zygote.c"
#include "worker_functions.c"
#include "job.c"
#include "push.c"
#include "module.c"
#include "settings.c"
#include "report.c"
#include "warm.c"
#include "cache_state.c"
#include "heap.c"
#include "random.c"
#include "loaded.c"
#include "stack.c"
#include "end.c"

/* --- what the preloader calls --- */

EXPORT uint32_t forkyard_shim_version(void)
{
    return FORKYARD_SHIM_VERSION;
}

EXPORT int forkyard_shim_start(const struct forkyard_shim_start *start)
{
    zend_signal_startup();
    sapi_startup(&sapi);
    /* sapi_startup cleared these. */
    sapi.php_ini_path_override = start->php_ini ? strdup(start->php_ini) : NULL;
    sapi.ini_entries = start->ini_entries ? strdup(start->ini_entries) : NULL;
    sapi.executable_location = start->executable ? strdup(start->executable) : NULL;
    sapi.php_ini_ignore_cwd = 1;
    sapi.php_ini_ignore = start->no_php_ini;
    disabled_by_pool = start->disabled_functions;
    ini_names = start->ini_names;
    is_zygote = start->zygote;
    has_worker_functions = start->worker_script != 0;
    has_push_function = start->pushes_jobs;
    bool is_put_back = start->worker_script == FORKYARD_SHIM_PUT_BACK;
    if (is_put_back) {
        /* A rewind would restore a whole huge page. */
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
    if ((is_put_back ? sapi.startup(&sapi) : start_with_huge_pages()) != SUCCESS) {
        return -1;
    }
    if (start->extended_info) {
        CG(compiler_options) |= ZEND_COMPILE_EXTENDED_INFO;
    }
    int result = is_zygote ? finish_zygote() : 0;
    find_whom_to_tell();
    return result;
}

EXPORT int forkyard_shim_set_ini(const char *name, const char *value, int mode)
{
    volatile bool done = false;
    zend_first_try {
        done = value ? change_ini(name, value, mode, NULL) : hold_ini(name);
        if (done && value && strcmp(name, "disable_functions") == 0) {
            zend_disable_functions(value);
        }
#if PHP_VERSION_ID < 80500
        if (done && value && strcmp(name, "disable_classes") == 0) {
            disable_classes(value);
        }
#endif
    } zend_catch {
        done = false;
    } zend_end_try();
    return done ? 0 : -1;
}

/* --- what a worker calls --- */

#if PHP_VERSION_ID >= 80500
/* Missing in some builds of these versions. */
extern void php_child_init(void) __attribute__((weak));
#endif

/* Missing in the first releases of PHP 8.2 and 8.3, whose getenv() without a name calls the other function. */
extern PHPAPI void (*php_load_environment_variables)(zval *array_ptr) __attribute__((weak));

static void take_over_environment(void)
{
    if (!import_process_environment) {
        import_process_environment = php_import_environment_variables;
        php_import_environment_variables = import_environment;
        if (&php_load_environment_variables) {
            php_load_environment_variables = load_environment;
        }
    }
}

static void go_on_in_worker(void);

EXPORT void forkyard_shim_begin_worker(const struct forkyard_shim_worker *given, struct forkyard_shim_facts *facts)
{
    worker = *given;
    api = worker.api;
#if PHP_VERSION_ID >= 80500
    if (php_child_init) {
        php_child_init();
    }
#endif
    /* PHP chains to the handlers it finds here: the worker's, not the preloader's. */
    zend_signal_startup();
    if (worker_script) {
        go_on_in_worker();
    }
    if (worker_script || has_preloaded()) {
        find_generators();
        seed_generators();
    }

    /* PHP enters the script's directory and returns by name. Returning through a descriptor is cheaper. */
    home_directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (home_directory >= 0) {
        SG(options) |= SAPI_OPTION_NO_CHDIR;
    }

    take_over_environment();

    facts->expose_php = PG(expose_php);
    facts->fix_pathinfo = sapi_ini.fix_pathinfo;
    facts->discard_path = sapi_ini.discard_path;
    facts->script_path_encoded = sapi_ini.script_path_encoded;
    facts->doc_root = TEXT_OF_SETTING(PG(doc_root));
}

EXPORT int forkyard_shim_resolves(const char *path)
{
    char *resolved = tsrm_realpath(path, NULL);
    if (!resolved) {
        return 0;
    }
    efree(resolved);
    return 1;
}

static struct forkyard_text text(const char *string)
{
    return (struct forkyard_text){string, string ? strlen(string) : 0};
}

static void describe(const struct forkyard_shim_request *given)
{
    struct forkyard_description description = {
        .method = text(given->method),
        .uri = text(given->request_uri),
        .query = text(given->query_string),
        .script = text(given->script),
        .user = text(SG(request_info).auth_user),
        .content_length = given->content_length > 0 ? (uint64_t)given->content_length : 0,
    };
    api->describe(REQUEST(), &description);
}

static void set_request_info(const struct forkyard_shim_request *given)
{
    SG(request_info).request_method = given->method;
    SG(request_info).query_string = (char *)given->query_string;
    SG(request_info).request_uri = (char *)given->request_uri;
    SG(request_info).content_type = given->content_type;
    SG(request_info).content_length = given->content_length;
    SG(request_info).proto_num = 1000;
    SG(sapi_headers).http_response_code = (int)given->status;
    if (given->content_type) {
        php_handle_auth_data(given->authorization);
    }
    describe(given);
}

static void take_request_info(const struct forkyard_shim_request *given)
{
    SG(request_info).path_translated = given->script ? estrdup(given->script) : NULL;
    set_request_info(given);
    apply_param_ini(given->php_value, ZEND_INI_USER);
    apply_param_ini(given->php_admin_value, ZEND_INI_SYSTEM);
}

static void refuse(int status, const char *body)
{
    SG(sapi_headers).http_response_code = status;
    php_output_write(body, strlen(body));
}

static void run_script(void)
{
    zend_file_handle file = {0};
    /* PHP frees the path if it can't open the file. */
    char *path = estrdup(SG(request_info).path_translated);
    /* Do not report an earlier failure below. */
    errno = 0;
    if (php_fopen_primary_script(&file) == FAILURE) {
        int reason = errno;
        say_formatted(FORKYARD_SHIM_ERROR, "Unable to open primary script: %s (%s)", path, strerror(reason));
        if (REQUEST() && worker.unopened) {
            worker.unopened(REQUEST(), path, reason == EPERM);
        }
        if (reason == EACCES) {
            refuse(403, "Access denied.\n");
        } else {
            refuse(404, "No input file specified.\n");
        }
    } else {
        api->set_stage(REQUEST(), FORKYARD_STAGE_EXECUTING);
        EG(exit_status) = 0;
        if (home_directory >= 0) {
            php_ignore_value(VCWD_CHDIR_FILE(SG(request_info).path_translated));
        }
        php_execute_script(&file);
        if (home_directory >= 0) {
            php_ignore_value(fchdir(home_directory));
        }
    }
    zend_destroy_file_handle(&file);
    efree(path);
}

static void answer(void)
{
    if (!serving->method) {
        return;
    }
    if (serving->denied == 3) {
        say_formatted(FORKYARD_SHIM_NOTICE, "Primary script unknown: its name has a zero byte (SCRIPT_FILENAME, or PATH_TRANSLATED)");
        refuse(404, "File not found.\n");
    } else if (!serving->script) {
        say(FORKYARD_SHIM_DEBUG, false, "Primary script unknown", sizeof("Primary script unknown") - 1);
        refuse(404, "File not found.\n");
    } else if (serving->denied == 2) {
        say_formatted(FORKYARD_SHIM_NOTICE, "Access to the script '%s' has been denied (it is outside application.script_root)",
                      serving->script);
        refuse(403, "Access denied.\n");
    } else if (serving->denied == 4) {
        say_formatted(FORKYARD_SHIM_NOTICE, "Access to the script '%s' has been denied (it leads out of its release and release_shared)",
                      serving->script);
        refuse(403, "Access denied.\n");
    } else if (serving->denied) {
        say_formatted(FORKYARD_SHIM_NOTICE, "Access to the script '%s' has been denied (see security.limit_extensions)",
                      serving->script);
        refuse(403, "Access denied.\n");
    } else {
        run_script();
    }
}

static void add_error_header(void)
{
    if (EG(exit_status) == 255 && sapi_ini.error_header && *sapi_ini.error_header && !SG(headers_sent)) {
        sapi_header_line line = {0};
        line.line = sapi_ini.error_header;
        line.line_len = strlen(sapi_ini.error_header);
        sapi_header_op(SAPI_HEADER_REPLACE, &line);
    }
}

/* A request without a body needs no time limit for its input, and PHP sets one timer instead of two. */
static bool has_body(void)
{
    return serving->content_length > 0;
}

static void name_files(void)
{
    zend_string *path;
    if (!serving->names_files || !worker.included) {
        return;
    }
    ZEND_HASH_FOREACH_STR_KEY(&EG(included_files), path) {
        if (path) {
            worker.included(REQUEST(), ZSTR_VAL(path), ZSTR_LEN(path));
        }
    } ZEND_HASH_FOREACH_END();
}

static int serve(void)
{
    zend_long input_time = PG(max_input_time);
    if (!has_body()) {
        PG(max_input_time) = -1;
    }
    zend_try {
        take_request_info(serving);
    } zend_end_try();

    if (php_request_startup() == FAILURE) {
        return -1;
    }
    zend_try {
        answer();
    } zend_end_try();
    zend_try {
        if (body_file >= 0) {
            close(body_file);
            body_file = -1;
        }
        add_error_header();
        tell_late_error();
        name_files();
        api->set_memory(REQUEST(), zend_memory_peak_usage(1));
        api->set_stage(REQUEST(), FORKYARD_STAGE_END);
    } zend_end_try();

    if (SG(request_info).path_translated) {
        efree(SG(request_info).path_translated);
        SG(request_info).path_translated = NULL;
    }
    if (!has_body() && PG(max_input_time) == -1) {
        PG(max_input_time) = input_time;
    }
    if (CG(unclean_shutdown)) {
        worker.forget_timer();
    }
    php_request_shutdown(NULL);
    return 0;
}

EXPORT int forkyard_shim_serve(forkyard_request *request, const struct forkyard_shim_request *description)
{
    volatile int result = -1;
    serving = description;
    SG(server_context) = request;
    has_logged = false;
    has_finished = false;
    has_answered = false;
    sent_status = 0;
    ZVAL_UNDEF(&after_snapshot);
    zend_first_try {
        result = serve();
        undo_param_ini();
    } zend_end_try();
    SG(server_context) = NULL;
    serving = NULL;
#ifdef ZEND_SIGNALS
    if (!has_served) {
        /* PHP's handlers are installed and need not be installed for each request. */
        SIGG(reset) = 0;
    }
#endif
    has_served = true;
    return result;
}

#include "code_cache.c"
#include "worker_script.c"
