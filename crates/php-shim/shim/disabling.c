/*
 * disabling.c, part of shim.c: disable_functions of one request. The functions do not exist during the request and
 * return after it.
 *
 * For a function in the table, the compiler emits a call that expects it there, or, for strlen() and similar ones,
 * no call at all. OPcache keeps code compiled for other requests, so this request runs without OPcache.
 */

/* Code compiled by opcache.preload expects all functions. */
static bool has_preloaded(void)
{
    const char *path = ini_text("opcache.preload");
    return path && *path;
}

static void do_without_opcache(void)
{
    if (zend_ini_long("opcache.enable", sizeof("opcache.enable") - 1, 0)) {
        struct ini_change change = {0};
        change_ini("opcache.enable", "0", FORKYARD_SHIM_SYSTEM, &change);
        remember(&change);
    }
}

static ZEND_COLD void call_of_disabled(INTERNAL_FUNCTION_PARAMETERS)
{
    (void)return_value;
    zend_throw_error(NULL, "Call to undefined function %s()", ZSTR_VAL(execute_data->func->common.function_name));
}

/* Keeps the entry in place: PHP expects its own functions first in the table, in this order. */
static void disable_for_request(Bucket *entry)
{
    struct disabled_function *disabled = pemalloc(sizeof(*disabled), 1);
    disabled->earlier = disabled_functions;
    disabled->function = Z_PTR(entry->val);
    disabled->handler = disabled->function->handler;
    disabled->name = NULL;
    if (has_preloaded()) {
        disabled->function->handler = call_of_disabled;
    } else {
        disabled->name = entry->key;
        entry->key = no_name;
    }
    disabled_functions = disabled;
}

static void disable_functions_for_request(const char *list)
{
    char *names = estrdup(list), *rest = NULL;
    for (char *name = strtok_r(names, " ,", &rest); name; name = strtok_r(NULL, " ,", &rest)) {
        char *lower = zend_str_tolower_dup(name, strlen(name));
        zval *found = zend_hash_str_find(CG(function_table), lower, strlen(lower));
        efree(lower);
        if (!found || Z_FUNC_P(found)->type != ZEND_INTERNAL_FUNCTION ||
            Z_FUNC_P(found)->internal_function.handler == call_of_disabled) {
            continue;
        }
        if (!disabled_functions) {
            do_without_opcache();
            compiler_options = CG(compiler_options);
            CG(compiler_options) |= ZEND_COMPILE_NO_BUILTINS;
        }
        /* The value is a bucket's first member. */
        disable_for_request((Bucket *)found);
    }
    efree(names);
}

/* Not by position: a table that has grown may have closed gaps. */
static void name_functions_again(void)
{
    Bucket *entry;
    ZEND_HASH_FOREACH_BUCKET(CG(function_table), entry) {
        if (entry->key != no_name) {
            continue;
        }
        for (struct disabled_function *disabled = disabled_functions; disabled; disabled = disabled->earlier) {
            if (disabled->function == Z_PTR(entry->val)) {
                entry->key = disabled->name;
            }
        }
    } ZEND_HASH_FOREACH_END();
}

static void enable_functions_again(void)
{
    if (!disabled_functions) {
        return;
    }
    CG(compiler_options) = compiler_options;
    name_functions_again();
    while (disabled_functions) {
        struct disabled_function *disabled = disabled_functions;
        disabled_functions = disabled->earlier;
        disabled->function->handler = disabled->handler;
        free(disabled);
    }
}
