/*
 * likeness.c, part of shim.c: differences between the builds of libphp and php-fpm.
 */

static int is_constant_of(zval *constant, void *module_number)
{
    bool is_its = ZEND_CONSTANT_MODULE_NUMBER((zend_constant *)Z_PTR_P(constant)) == *(uint32_t *)module_number;
    return is_its ? ZEND_HASH_APPLY_REMOVE : ZEND_HASH_APPLY_KEEP;
}

static int is_class_of(zval *entry, void *module_number)
{
    zend_class_entry *class = Z_PTR_P(entry);
    bool is_its = class->type == ZEND_INTERNAL_CLASS && class->info.internal.module
        && (uint32_t)class->info.internal.module->module_number == *(uint32_t *)module_number;
    return is_its ? ZEND_HASH_APPLY_REMOVE : ZEND_HASH_APPLY_KEEP;
}

/* Gives the last registered module the number of a removed one. PHP uses the count of modules as the next number, so
 * OPcache and another module would share one, and get_defined_constants() would mix them up. */
static void take_number(uint32_t number)
{
    zend_module_entry *module, *last = NULL;
    ZEND_HASH_FOREACH_PTR(&module_registry, module) {
        if (!last || module->module_number > last->module_number) {
            last = module;
        }
    } ZEND_HASH_FOREACH_END();
    if (!last || (uint32_t)last->module_number < number) {
        return;
    }
    int before = last->module_number;
    zend_constant *constant;
    ZEND_HASH_FOREACH_PTR(EG(zend_constants), constant) {
        if (ZEND_CONSTANT_MODULE_NUMBER(constant) == (uint32_t)before) {
            ZEND_CONSTANT_SET_FLAGS(constant, ZEND_CONSTANT_FLAGS(constant), number);
        }
    } ZEND_HASH_FOREACH_END();
    zend_ini_entry *entry;
    ZEND_HASH_FOREACH_PTR(EG(ini_directives), entry) {
        if (entry->module_number == before) {
            entry->module_number = (int)number;
        }
    } ZEND_HASH_FOREACH_END();
    last->module_number = (int)number;
}

/* Debian builds libphp with pcntl and php-fpm without. A forked script would share its worker's connections, and
 * php-fpm's lists of disabled functions omit pcntl_exec. Removed early, before its request hooks and any preloaded
 * script. */
static void remove_pcntl(void)
{
    zend_module_entry *pcntl = zend_hash_str_find_ptr(&module_registry, "pcntl", sizeof("pcntl") - 1);
    if (!pcntl || !pcntl->module_started) {
        return;
    }
    uint32_t number = (uint32_t)pcntl->module_number;
    zend_unregister_functions(pcntl->functions, -1, CG(function_table));
    zend_hash_apply_with_argument(EG(zend_constants), is_constant_of, &number);
    zend_hash_apply_with_argument(CG(class_table), is_class_of, &number);
    zend_hash_str_del(&module_registry, "pcntl", sizeof("pcntl") - 1);
    take_number(number);
}

/* Debian's libphp names its own directory, /etc/php/8.2/embed, but php-fpm's is read. Returns NULL if there is none
 * next to it. */
static zend_string *php_fpms_directory(const char *embeds)
{
    static const char own[] = "/embed", theirs[] = "/fpm";
    const char *at = strstr(embeds, own);
    if (!at || (at[strlen(own)] != '\0' && at[strlen(own)] != '/')) {
        return NULL;
    }
    zend_string *path = zend_strpprintf(0, "%.*s%s%s", (int)(at - embeds), embeds, theirs, at + strlen(own));
    if (access(ZSTR_VAL(path), F_OK) == 0) {
        return path;
    }
    zend_string_release(path);
    return NULL;
}

static void correct_path_constant(const char *name, size_t length)
{
    zend_constant *constant = zend_hash_str_find_ptr(EG(zend_constants), name, length);
    zend_string *path = constant ? php_fpms_directory(Z_STRVAL(constant->value)) : NULL;
    if (path) {
        zend_string_release(Z_STR(constant->value));
        /* Without a reference count: PHP's shutdown would free a counted string twice, the second time with the
         * table of interned strings. */
        ZVAL_INTERNED_STR(&constant->value, zend_string_init_interned(ZSTR_VAL(path), ZSTR_LEN(path), 1));
        zend_string_release(path);
    }
}

static zif_handler phpinfo_of_libphp;
/* libphp's PHP_CONFIG_FILE_PATH. The header's is that of the CLI. */
static char *path_of_libphp;

/* phpinfo() has libphp's path of php.ini compiled in. */
static void print_with_path_of_php_fpm(void (*print)(void *), void *context)
{
    zend_string *path = path_of_libphp ? php_fpms_directory(path_of_libphp) : NULL;
    if (!path || php_output_start_default() == FAILURE) {
        print(context);
    } else {
        zval text;
        print(context);
        php_output_get_contents(&text);
        php_output_discard();
        const char *row = strstr(Z_STRVAL(text), "Configuration File (php.ini) Path");
        const char *at = row ? strstr(row, path_of_libphp) : NULL;
        const char *rest = at ? at + strlen(path_of_libphp) : Z_STRVAL(text);
        if (at) {
            php_output_write(Z_STRVAL(text), at - Z_STRVAL(text));
            php_output_write(ZSTR_VAL(path), ZSTR_LEN(path));
        }
        php_output_write(rest, Z_STRVAL(text) + Z_STRLEN(text) - rest);
        zval_ptr_dtor(&text);
    }
    if (path) {
        zend_string_release(path);
    }
}

struct call {
    zend_execute_data *execute_data;
    zval *return_value;
};

static void call_phpinfo(void *context)
{
    struct call *call = context;
    phpinfo_of_libphp(call->execute_data, call->return_value);
}

static PHP_FUNCTION(forkyard_phpinfo)
{
    struct call call = {execute_data, return_value};
    print_with_path_of_php_fpm(call_phpinfo, &call);
}

static void print_whole_info(void *context)
{
    (void)context;
    php_print_info(0xFFFFFFFF);
}

/* Early, before any preloaded script. */
static void become_like_php_fpm(void)
{
    remove_pcntl();
    /* PHP has it only in programs that serve one user. */
    zend_hash_str_del(CG(function_table), "chroot", sizeof("chroot") - 1);
    /* Request shutdown drops entries after the position where PHP's own ended at the start, and OPcache counts a
     * script's functions by the table's length. A table closes its gaps when it grows, which would move a script's
     * first functions before that position. */
    zend_hash_rehash(CG(function_table));
    zend_hash_rehash(CG(class_table));
    zend_hash_rehash(EG(zend_constants));

    zval *path = zend_get_constant_str("PHP_CONFIG_FILE_PATH", sizeof("PHP_CONFIG_FILE_PATH") - 1);
    path_of_libphp = path ? strdup(Z_STRVAL_P(path)) : NULL;
    correct_path_constant("PHP_CONFIG_FILE_PATH", sizeof("PHP_CONFIG_FILE_PATH") - 1);
    correct_path_constant("PHP_CONFIG_FILE_SCAN_DIR", sizeof("PHP_CONFIG_FILE_SCAN_DIR") - 1);
    zend_internal_function *phpinfo = zend_hash_str_find_ptr(CG(function_table), "phpinfo", sizeof("phpinfo") - 1);
    if (phpinfo) {
        phpinfo_of_libphp = phpinfo->handler;
        phpinfo->handler = zif_forkyard_phpinfo;
    }
}
