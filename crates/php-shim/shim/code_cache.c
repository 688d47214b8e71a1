/*
 * code_cache.c, part of shim.c: OPcache in an application that boots once.
 *
 * OPcache resets when a process begins a request, which workers of such an application never do, and their code
 * dates from the boot. So a reset of OPcache requests another boot, which has its own OPcache.
 */

static zif_handler reset_of_opcache;

/* As in OPcache: opcache.restrict_api is a prefix of the allowed scripts' paths. */
static bool may_use_opcache(void)
{
    const char *restricted = ini_text("opcache.restrict_api");
    if (!restricted || !*restricted) {
        return true;
    }
    const char *script = SG(request_info).path_translated;
    return script && strncmp(script, restricted, strlen(restricted)) == 0;
}

static PHP_FUNCTION(forkyard_opcache_reset)
{
    zend_ini_entry *enable = zend_hash_str_find_ptr(EG(ini_directives), "opcache.enable", sizeof("opcache.enable") - 1);
    if (!enable || !enable->value || !zend_ini_parse_bool(enable->value) || !may_use_opcache()) {
        reset_of_opcache(INTERNAL_FUNCTION_PARAM_PASSTHRU);
        return;
    }
    ZEND_PARSE_PARAMETERS_NONE();
    worker_script->code_reset(worker_script->context);
    RETURN_TRUE;
}

static void take_over_opcache(void)
{
    zend_internal_function *reset = zend_hash_str_find_ptr(CG(function_table), "opcache_reset", sizeof("opcache_reset") - 1);
    if (reset && reset->type == ZEND_INTERNAL_FUNCTION) {
        reset_of_opcache = reset->handler;
        reset->handler = zif_forkyard_opcache_reset;
    }
}

static bool is_set(const zval *status, const char *name)
{
    zval *value = zend_hash_str_find(Z_ARRVAL_P(status), name, strlen(name));
    return value && Z_TYPE_P(value) == IS_TRUE;
}

EXPORT int forkyard_shim_is_code_full(void)
{
    volatile bool is_full = false;
    /* opcache.restrict_api applies to scripts, and a refusal would raise a warning. After a fatal error PHP calls no
     * function. */
    if (!may_use_opcache() || CG(unclean_shutdown)) {
        return 0;
    }
    zend_try {
        zval status;
        ZVAL_UNDEF(&status);
        if (call_status(&status, false)) {
            is_full = is_set(&status, "cache_full") || is_set(&status, "restart_pending");
        }
        zval_ptr_dtor(&status);
    } zend_end_try();
    return is_full;
}
