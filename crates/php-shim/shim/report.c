/*
 * report.c, part of shim.c: PHP's reports on standard output.
 */

static size_t write_report(const char *data, size_t length)
{
    return fwrite(data, 1, length, stdout);
}

static int send_no_headers(sapi_headers_struct *headers)
{
    return SAPI_HEADER_SENT_SUCCESSFULLY;
}

/* A request without a web server. */
static void come_from_nobody(size_t (*write)(const char *, size_t), void (*register_variables)(zval *))
{
    sapi_module.ub_write = write;
    sapi_module.send_headers = send_no_headers;
    sapi_module.activate = NULL;
    sapi_module.deactivate = NULL;
    sapi_module.flush = NULL;
    sapi_module.getenv = NULL;
    sapi_module.read_cookies = NULL;
    sapi_module.register_server_variables = register_variables;
}

/* The answer has a body but no headers. */
static bool begin_without_headers(void)
{
    if (php_request_startup() == FAILURE) {
        return false;
    }
    SG(headers_sent) = 1;
    SG(request_info).no_headers = 1;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcasecmp(*(const char *const *)a, *(const char *const *)b);
}

static void print_names(const char **names, size_t count)
{
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++) {
        php_printf("%s\n", names[i]);
    }
}

static void print_modules(void)
{
    size_t count = 0;
    const char **names = safe_emalloc(zend_hash_num_elements(&module_registry) + 1, sizeof *names, 0);
    zend_module_entry *module;
    ZEND_HASH_FOREACH_PTR(&module_registry, module) {
        names[count++] = module->name;
    } ZEND_HASH_FOREACH_END();
    php_printf("[PHP Modules]\n");
    print_names(names, count);

    count = 0;
    names = safe_erealloc(names, zend_llist_count(&zend_extensions) + 1, sizeof *names, 0);
    zend_llist_position position;
    zend_extension *extension = zend_llist_get_first_ex(&zend_extensions, &position);
    for (; extension; extension = zend_llist_get_next_ex(&zend_extensions, &position)) {
        names[count++] = extension->name;
    }
    php_printf("\n[Zend Modules]\n");
    print_names(names, count);
    php_printf("\n");
    efree(names);
}

static void register_environment(zval *variables)
{
    php_import_environment_variables(variables);
    php_register_variable("PHP_SELF", "", variables);
}

#if PHP_VERSION_ID >= 80400
static void print_version(void)
{
    php_print_version(&sapi_module);
}
#else
/* libphp shows its build date only in phpinfo(). */
static FILE *general_information;

static size_t keep_report(const char *data, size_t length)
{
    return fwrite(data, 1, length, general_information);
}

static void print_version(void)
{
    static const char mark[] = "Build Date => ";
    char *text = NULL;
    size_t length;
    general_information = open_memstream(&text, &length);
    if (general_information) {
        sapi_module.ub_write = keep_report;
        php_print_info(PHP_INFO_GENERAL);
        php_output_end_all();
        sapi_module.ub_write = write_report;
        fclose(general_information);
    }
    const char *date = text ? strstr(text, mark) : NULL;
    date = date ? date + strlen(mark) : "unknown";
    php_printf("PHP %s (%s) (built: %.*s)\nCopyright (c) The PHP Group\n%s", php_release(), sapi_module.name,
        (int)strcspn(date, "\n"), date, get_zend_version());
    free(text);
}
#endif

EXPORT int forkyard_shim_report(int what)
{
    volatile int result = -1;
    come_from_nobody(write_report, register_environment);
    sapi_module.phpinfo_as_text = 1;
    if (!begin_without_headers()) {
        return -1;
    }
    zend_first_try {
        switch (what) {
        case FORKYARD_SHIM_VERSION_TEXT:
            print_version();
            break;
        case FORKYARD_SHIM_MODULES:
            print_modules();
            break;
        default:
            print_with_path_of_php_fpm(print_whole_info, NULL);
        }
        php_output_end_all();
        result = 0;
    } zend_end_try();
    fflush(stdout);
    return result;
}
