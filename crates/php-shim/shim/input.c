/*
 * input.c, part of shim.c: the body, the cookies, the parameters.
 */

/* Returns false if a file is named but unreadable. */
static bool open_body_file(void)
{
    const char *path = PARAM("REQUEST_BODY_FILE");
    if (!path || !*path) {
        return true;
    }
    body_file = open(path, O_RDONLY | O_CLOEXEC);
    if (body_file < 0) {
        php_error(E_WARNING, "REQUEST_BODY_FILE: open('%s') failed: %s (%d)", path, strerror(errno), errno);
        return false;
    }
    return true;
}

static size_t on_read_post(char *buffer, size_t size)
{
    int64_t left = SG(request_info).content_length - SG(read_post_bytes);
    size_t wanted = left < 0 ? 0 : MIN((size_t)left, size);
    size_t done = 0;

    if (wanted && body_file < 0 && !open_body_file()) {
        return 0;
    }
    while (done < wanted) {
        ptrdiff_t count = body_file < 0 ? api->read_body(REQUEST(), buffer + done, wanted - done)
                                        : read(body_file, buffer + done, wanted - done);
        if (count <= 0) {
            /* The client left early. As in php-fpm, drop the block: a script must not read part of "amount=1000" as
             * the whole. */
            return body_file < 0 ? 0 : done;
        }
        done += (size_t)count;
    }
    return done;
}

static char *on_read_cookies(void)
{
    return serving ? (char *)serving->cookies : NULL;
}

static char *on_getenv(const char *name, size_t length)
{
    return api ? param(name, length) : getenv(name);
}

typedef void (*param_visitor)(const char *name, unsigned int name_length, char *value, unsigned int value_length,
                              void *context);

/* Visits the parameters in php-fpm's order: last first, then the role, which php-fpm adds itself. */
static void each_param(param_visitor visit, void *context)
{
    struct forkyard_text name, value;
    /* A worker script may ask between two requests. */
    if (!REQUEST()) {
        return;
    }
    for (size_t i = api->param_count(REQUEST()); i-- > 0;) {
        if (!api->param_at(REQUEST(), i, &name, &value)) {
            continue;
        }
        /* For a name with a zero byte, getallheaders() reads uninitialised memory. */
        if (memchr(name.data, '\0', name.length)) {
            continue;
        }
        if (name.length == sizeof("FCGI_ROLE") - 1 && memcmp(name.data, "FCGI_ROLE", name.length) == 0) {
            continue;
        }
        visit(name.data, name.length, (char *)value.data, value.length, context);
    }
    char *role = PARAM("FCGI_ROLE");
    role = role ? role : "RESPONDER";
    visit("FCGI_ROLE", sizeof("FCGI_ROLE") - 1, role, strlen(role), context);
}

static void register_filtered(const char *name, unsigned int name_length, char *value, unsigned int value_length,
                              void *array)
{
    bool is_env = Z_ARR_P((zval *)array) == Z_ARR(PG(http_globals)[TRACK_VARS_ENV]);
    size_t length;
    (void)name_length;
    (void)value_length;
    if (sapi_module.input_filter(is_env ? PARSE_ENV : PARSE_SERVER, name, &value, strlen(value), &length)) {
        php_register_variable_safe(name, value, length, array);
    }
}

static void register_raw(const char *name, unsigned int name_length, char *value, unsigned int value_length,
                         void *array)
{
    (void)name_length;
    php_register_variable_safe(name, value, value_length, array);
}

/* Copies $_ENV or $_SERVER to array if it exists already. */
static bool copy_superglobal(zval *array, int which)
{
    zval *made = &PG(http_globals)[which];
    if (Z_TYPE_P(made) != IS_ARRAY || Z_ARR_P(array) == Z_ARR_P(made) ||
        zend_hash_num_elements(Z_ARRVAL_P(made)) == 0) {
        return false;
    }
    zend_array_destroy(Z_ARR_P(array));
    Z_ARR_P(array) = zend_array_dup(Z_ARR_P(made));
    return true;
}

static void import_environment(zval *array)
{
    /* It outlives requests of a worker script, so it must contain nothing of theirs. */
    if (worker_script && array == &PG(http_globals)[TRACK_VARS_ENV]) {
        import_process_environment(array);
        return;
    }
    /* In a worker script, the existing one belongs to the previous request. */
    if (!worker_script && (copy_superglobal(array, TRACK_VARS_ENV) || copy_superglobal(array, TRACK_VARS_SERVER))) {
        return;
    }
    import_process_environment(array);
    each_param(register_filtered, array);
}

static void load_environment(zval *array)
{
    import_process_environment(array);
    each_param(register_raw, array);
}

static void on_register_variables(zval *array)
{
    php_import_environment_variables(array);

    const char *uri = SG(request_info).request_uri;
    const char *path_info = sapi_ini.fix_pathinfo ? PARAM("PATH_INFO") : NULL;
    zend_string *self = zend_strpprintf(0, "%s%s", uri ? uri : "", path_info ? path_info : "");
    char *value = ZSTR_VAL(self);
    size_t length = ZSTR_LEN(self);
    if (sapi_module.input_filter(PARSE_SERVER, "PHP_SELF", &value, length, &length)) {
        php_register_variable_safe("PHP_SELF", value, length, array);
    }
    zend_string_release(self);
    if (has_worker_functions) {
        php_register_variable("FRANKENPHP_WORKER", "1", array);
        php_register_variable("MAX_REQUESTS", worker_script ? (char *)worker_script->max_requests : "1", array);
    }
}
