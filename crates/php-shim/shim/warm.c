/*
 * warm.c, part of shim.c: lists OPcache's scripts, and compiles scripts into it without running them.
 */

static size_t drop_output(const char *data, size_t length)
{
    (void)data;
    return length;
}

/* A script that does not compile is reported when it is requested. */
static void drop_error(int type, zend_string *file, const uint32_t line, zend_string *message)
{
    (void)file;
    (void)line;
    (void)message;
    if (type & E_FATAL_ERRORS) {
        zend_bailout();
    }
}

EXPORT const char *forkyard_shim_ini(const char *name)
{
    bool exists = false;
    const char *value = zend_ini_string_ex(name, strlen(name), 0, &exists);
    return exists ? value : NULL;
}

EXPORT int forkyard_shim_begin_quiet(void)
{
    come_from_nobody(drop_output, NULL);
    zend_error_cb = drop_error;
    volatile int result = -1;
    zend_first_try {
        /* opcache.restrict_api applies to scripts. */
        change_ini("opcache.restrict_api", "", ZEND_INI_SYSTEM, NULL);
        result = begin_without_headers() ? 0 : -1;
    } zend_end_try();
    return result;
}

/* Calls an extension's function, which disable_functions may have removed from the table. Returns false if there is
 * none. */
static bool call_function_of(const char *extension, const char *name, zval *result, uint32_t count, zval *arguments)
{
    zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, extension, strlen(extension));
    const zend_function_entry *entry = module ? module->functions : NULL;
    while (entry && entry->fname && strcmp(entry->fname, name) != 0) {
        entry++;
    }
    if (!entry || !entry->fname) {
        return false;
    }
    zend_internal_function function = {0};
    function.type = ZEND_INTERNAL_FUNCTION;
    function.function_name = zend_string_init(entry->fname, strlen(entry->fname), 1);
    function.handler = entry->handler;
    function.module = module;
    zend_call_known_function((zend_function *)&function, NULL, NULL, result, count, arguments, NULL);
    zend_string_release(function.function_name);
    return true;
}

static bool call_status(zval *status, bool has_scripts)
{
    zval argument;
    ZVAL_BOOL(&argument, has_scripts);
    return call_function_of("zend opcache", "opcache_get_status", status, 1, &argument) && Z_TYPE_P(status) == IS_ARRAY;
}

EXPORT void forkyard_shim_scripts(void (*each)(void *context, const char *path, size_t length, int64_t hits), void *context)
{
    zend_first_try {
        zval status;
        ZVAL_UNDEF(&status);
        zval *scripts = call_status(&status, true) ? zend_hash_str_find(Z_ARRVAL(status), "scripts", sizeof("scripts") - 1) : NULL;
        if (scripts && Z_TYPE_P(scripts) == IS_ARRAY) {
            zval *script;
            ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(scripts), script) {
                if (Z_TYPE_P(script) != IS_ARRAY) {
                    continue;
                }
                zval *path = zend_hash_str_find(Z_ARRVAL_P(script), "full_path", sizeof("full_path") - 1);
                zval *hits = zend_hash_str_find(Z_ARRVAL_P(script), "hits", sizeof("hits") - 1);
                if (path && Z_TYPE_P(path) == IS_STRING) {
                    each(context, Z_STRVAL_P(path), Z_STRLEN_P(path), hits ? zval_get_long(hits) : 0);
                }
            } ZEND_HASH_FOREACH_END();
        }
    } zend_end_try();
}

EXPORT int forkyard_shim_compile(const char *path)
{
    volatile int result = -1;
    uint32_t options = CG(compiler_options);
    zend_file_handle file;
    zend_stream_init_filename(&file, path);
    file.primary_script = 0;
    zend_first_try {
        CG(compiler_options) |= ZEND_COMPILE_WITHOUT_EXECUTION;
        zend_op_array *code = zend_compile_file(&file, ZEND_INCLUDE);
        if (code) {
            destroy_op_array(code);
            efree(code);
            result = 0;
        }
    } zend_end_try();
    CG(compiler_options) = options;
    if (EG(exception)) {
        zend_clear_exception();
    }
    zend_destroy_file_handle(&file);
    return result;
}
