/*
 * cache_state.c, part of shim.c: the state of OPcache and APCu as JSON. The calling process serves no request after it.
 */

static bool is_loaded(const char *extension)
{
    return zend_hash_str_exists(&module_registry, extension, strlen(extension));
}

static void add_opcache(zval *state)
{
    add_assoc_bool(state, "has_opcache", is_loaded("zend opcache"));
    zval status;
    ZVAL_UNDEF(&status);
    if (!call_status(&status, false)) {
        zval_ptr_dtor(&status);
        return;
    }
    /* They list every preloaded function and class. */
    zend_hash_str_del(Z_ARRVAL(status), "preload_statistics", sizeof("preload_statistics") - 1);
    add_assoc_zval(state, "opcache", &status);
}

/* Adds the result of a function of APCu that takes whether its answer is short. */
static void add_apcu(zval *state, const char *key, const char *name)
{
    zval short_answer, answer;
    ZVAL_TRUE(&short_answer);
    ZVAL_UNDEF(&answer);
    if (call_function_of("apcu", name, &answer, 1, &short_answer) && Z_TYPE(answer) == IS_ARRAY) {
        add_assoc_zval(state, key, &answer);
    } else {
        zval_ptr_dtor(&answer);
    }
}

EXPORT int forkyard_shim_cache_state(int is_in_request, void (*write)(void *context, const char *text, size_t length), void *context)
{
    volatile int result = -1;
    if (!is_in_request && forkyard_shim_begin_quiet() != 0) {
        return result;
    }
    zend_first_try {
        zend_error_cb = drop_error;
        change_ini("opcache.restrict_api", "", ZEND_INI_SYSTEM, NULL);
        zval state;
        array_init(&state);
        add_opcache(&state);
        add_assoc_bool(&state, "has_apcu", is_loaded("apcu"));
        add_apcu(&state, "apcu", "apcu_cache_info");
        add_apcu(&state, "apcu_memory", "apcu_sma_info");
        smart_str text = {0};
        if (php_json_encode_ex(&text, &state, PHP_JSON_PARTIAL_OUTPUT_ON_ERROR, 16) == SUCCESS && text.s) {
            write(context, ZSTR_VAL(text.s), ZSTR_LEN(text.s));
            result = 0;
        }
        smart_str_free(&text);
        zval_ptr_dtor(&state);
    } zend_end_try();
    return result;
}
