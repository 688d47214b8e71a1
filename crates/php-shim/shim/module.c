/*
 * module.c, part of shim.c: php-fpm's ini entries and functions, and the SAPI itself.
 */

PHP_INI_BEGIN()
    STD_PHP_INI_BOOLEAN("cgi.rfc2616_headers", "0", PHP_INI_ALL, OnUpdateBool, rfc2616_headers, struct sapi_ini, sapi_ini)
    STD_PHP_INI_BOOLEAN("cgi.nph", "0", PHP_INI_ALL, OnUpdateBool, nph, struct sapi_ini, sapi_ini)
#if PHP_VERSION_ID < 80500
    PHP_INI_ENTRY_EX("cgi.force_redirect", "1", PHP_INI_SYSTEM, NULL, zend_ini_boolean_displayer_cb)
    PHP_INI_ENTRY("cgi.redirect_status_env", NULL, PHP_INI_SYSTEM, NULL)
#endif
    STD_PHP_INI_BOOLEAN("cgi.fix_pathinfo", "1", PHP_INI_SYSTEM, OnUpdateBool, fix_pathinfo, struct sapi_ini, sapi_ini)
    STD_PHP_INI_BOOLEAN("cgi.discard_path", "0", PHP_INI_SYSTEM, OnUpdateBool, discard_path, struct sapi_ini, sapi_ini)
#if PHP_VERSION_ID >= 80500
    STD_PHP_INI_BOOLEAN("fastcgi.script_path_encoded", "1", PHP_INI_SYSTEM, OnUpdateBool, script_path_encoded, struct sapi_ini, sapi_ini)
#endif
    STD_PHP_INI_BOOLEAN("fastcgi.logging", "1", PHP_INI_SYSTEM, OnUpdateBool, logging, struct sapi_ini, sapi_ini)
    STD_PHP_INI_ENTRY("fastcgi.error_header", NULL, PHP_INI_SYSTEM, OnUpdateString, error_header, struct sapi_ini, sapi_ini)
    STD_PHP_INI_ENTRY("fpm.config", NULL, PHP_INI_SYSTEM, OnUpdateString, fpm_config, struct sapi_ini, sapi_ini)
PHP_INI_END()

/* PHP's, without a declaration in its headers. */
extern char *php_ini_opened_path, *php_ini_scanned_path, *php_ini_scanned_files;

static char *copy_of(const char *text)
{
    return text ? strdup(text) : NULL;
}

static void name_ini_files(void)
{
    free(php_ini_opened_path);
    php_ini_opened_path = copy_of(ini_names->php_ini);
    free(php_ini_scanned_files);
    php_ini_scanned_files = copy_of(ini_names->scanned);
    /* From the environment. */
    php_ini_scanned_path = copy_of(ini_names->directories);
    zval *path = cfg_get_entry("cfg_file_path", sizeof("cfg_file_path") - 1);
    if (path && ini_names->php_ini) {
        zend_string_release(Z_STR_P(path));
        ZVAL_NEW_STR(path, zend_string_init(ini_names->php_ini, strlen(ini_names->php_ini), 1));
    }
}

static PHP_MINIT_FUNCTION(forkyard)
{
    become_like_php_fpm();
    /* Without pcntl this module has another number. */
    module_number = EG(current_module)->module_number;
    zend_module_entry *own = zend_hash_str_find_ptr(&module_registry, "cgi-fcgi", sizeof("cgi-fcgi") - 1);
    if (own) {
        own->version = php_release();
    }
    if (ini_names) {
        name_ini_files();
    }
    no_name = zend_string_init_interned("\0forkyard", sizeof("\0forkyard") - 1, 1);
    if (disabled_by_pool) {
        zend_disable_functions(disabled_by_pool);
    }
    zend_hash_init(&user_configs, 0, NULL, free_user_config, 1);
    REGISTER_INI_ENTRIES();
    if (has_worker_functions && register_worker_functions(module_number) != SUCCESS) {
        return FAILURE;
    }
    watch_verdicts();
    if (has_push_function && register_push() != SUCCESS) {
        return FAILURE;
    }
    if (is_zygote) {
        zend_register_extension(&zygote_hook, NULL);
        watch_extensions();
    }
    return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(forkyard)
{
    zend_hash_destroy(&user_configs);
    UNREGISTER_INI_ENTRIES();
    return SUCCESS;
}

static PHP_MINFO_FUNCTION(forkyard)
{
    php_info_print_table_start();
    php_info_print_table_row(2, "php-fpm", "active");
    php_info_print_table_end();
    DISPLAY_INI_ENTRIES();
}

static PHP_FUNCTION(fastcgi_finish_request)
{
    ZEND_PARSE_PARAMETERS_NONE();
    if (!REQUEST() || api->is_finished(REQUEST())) {
        RETURN_FALSE;
    }
    if (is_job()) {
        /* No client waits: later work still belongs to the job. */
        RETURN_TRUE;
    }
    php_output_end_all();
    php_header();
    tell_later_status();
    api->finish(REQUEST());
    has_finished = true;
    RETURN_TRUE;
}

static PHP_FUNCTION(apache_request_headers)
{
    ZEND_PARSE_PARAMETERS_NONE();
    array_init(return_value);
    if (REQUEST()) {
        each_param(sapi_add_request_header, return_value);
    }
}

/* Enough for a pool of several thousand workers. */
#define STATUS_SIZE ((size_t)4 << 20)
/* Object, list of workers, worker. */
#define STATUS_DEPTH 4

static PHP_FUNCTION(fpm_get_status)
{
    ZEND_PARSE_PARAMETERS_NONE();
    if (!REQUEST() || !worker.status) {
        RETURN_FALSE;
    }
    /* Not from the request's memory, whose peak it would raise. Only written pages take memory. */
    static char *buffer;
    if (!buffer && !(buffer = malloc(STATUS_SIZE + 1))) {
        RETURN_FALSE;
    }
    size_t length = worker.status(REQUEST(), buffer, STATUS_SIZE);
    if (length == 0 || !decode_json(return_value, buffer, length, STATUS_DEPTH)) {
        RETVAL_FALSE;
    }
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arginfo_status, 0, 0, MAY_BE_ARRAY | MAY_BE_FALSE)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
    PHP_FE(fastcgi_finish_request, arginfo_bool)
    PHP_FE(apache_request_headers, arginfo_array)
    PHP_FALIAS(getallheaders, apache_request_headers, arginfo_array)
    PHP_FE(fpm_get_status, arginfo_status)
    PHP_FE_END
};

/* Applications look for php-fpm's module by this name. */
static zend_module_entry module_entry = {
    STANDARD_MODULE_HEADER,
    "cgi-fcgi",
    functions,
    PHP_MINIT(forkyard),
    PHP_MSHUTDOWN(forkyard),
    NULL,
    NULL,
    PHP_MINFO(forkyard),
    PHP_VERSION,
    STANDARD_MODULE_PROPERTIES
};

static int start_module(sapi_module_struct *module)
{
    return php_module_startup(module, &module_entry);
}

/* OPcache and applications know php-fpm by this name. */
static int end_request(void)
{
    tell_later_status();
    return on_deactivate();
}

static sapi_module_struct sapi = {
    .name = "fpm-fcgi",
    .pretty_name = "FPM/FastCGI",
    .startup = start_module,
    .shutdown = php_module_shutdown_wrapper,
    .activate = ON_ACTIVATE,
    .deactivate = end_request,
    .ub_write = on_write,
    .flush = on_flush,
    .getenv = on_getenv,
    .sapi_error = php_error,
    .send_headers = on_send_headers,
    .read_post = on_read_post,
    .read_cookies = on_read_cookies,
    .register_server_variables = on_register_variables,
    .log_message = on_log_message,
    .php_ini_ignore_cwd = 1,
#if PHP_VERSION_ID >= 80500
    .pre_request_init = activate_configs,
#endif
};
