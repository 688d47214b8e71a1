/*
 * user_ini.c, part of shim.c: ini values that depend on the request, from .user.ini files and php.ini's [PATH=] and
 * [HOST=] sections.
 */

static void free_user_config(zval *element)
{
    struct user_config *config = Z_PTR_P(element);
    zend_hash_destroy(&config->values);
    free(config);
}

/* Reads the .user.ini files from the document root down to directory (with a final slash), or only directory's own
 * if it is outside the document root. */
static void read_user_config(HashTable *values, char *directory, size_t length, const char *root, size_t root_length)
{
    if (length <= root_length) {
        if (strncmp(directory, root, length) != 0) {
            php_parse_user_ini_file(directory, PG(user_ini_filename), values);
        }
        return;
    }
    if (strncmp(directory, root, root_length) != 0) {
        php_parse_user_ini_file(directory, PG(user_ini_filename), values);
        return;
    }
    for (char *slash = directory + root_length; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        php_parse_user_ini_file(directory, PG(user_ini_filename), values);
        *slash = '/';
    }
}

static void activate_user_config(char *directory, size_t length, const char *root)
{
    size_t root_length = strlen(root);
    if (root_length > 0 && root[root_length - 1] == '/') {
        root_length--;
    }
    time_t now = (time_t)sapi_get_request_time();
    struct user_config *config = zend_hash_str_find_ptr(&user_configs, directory, length);
    if (!config) {
        config = pemalloc(sizeof(*config), 1);
        config->expires = 0;
        zend_hash_init(&config->values, 0, NULL, config_zval_dtor, 1);
        zend_hash_str_update_ptr(&user_configs, directory, length, config);
    }
    if (now > config->expires) {
        zend_hash_clean(&config->values);
        char *resolved = directory[0] == '/' ? estrndup(directory, length) : tsrm_realpath(directory, NULL);
        if (!resolved) {
            return;
        }
        read_user_config(&config->values, resolved, strlen(resolved), root, root_length);
        efree(resolved);
        config->expires = now + PG(user_ini_cache_ttl);
    }
    php_ini_activate_config(&config->values, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
}

static int activate_configs(void)
{
    if (!REQUEST() || !SG(request_info).path_translated) {
        return FAILURE;
    }
    if (php_ini_has_per_host_config()) {
        const char *name = PARAM("SERVER_NAME");
        if (name) {
            char *host = zend_str_tolower_dup(name, strlen(name));
            php_ini_activate_per_host_config(host, strlen(host));
            efree(host);
        }
    }
    bool has_user_ini = PG(user_ini_filename) && *PG(user_ini_filename);
    if (!has_user_ini && !php_ini_has_per_dir_config()) {
        return SUCCESS;
    }
    size_t length = strlen(SG(request_info).path_translated);
    char *directory = emalloc(length + 2);
    memcpy(directory, SG(request_info).path_translated, length + 1);
    length = zend_dirname(directory, length);
    directory[length++] = '/';
    directory[length] = '\0';

    php_ini_activate_per_dir_config(directory, length);
    const char *root = serving ? serving->document_root : NULL;
    if (has_user_ini && root) {
        activate_user_config(directory, length, root);
    }
    efree(directory);
    return SUCCESS;
}

#if PHP_VERSION_ID < 80500
#define ON_ACTIVATE activate_configs
#else
static int on_activate(void)
{
    return SUCCESS;
}
#define ON_ACTIVATE on_activate
#endif

/* Also called at the end of module start-up, without a request. No script runs afterwards. */
static int on_deactivate(void)
{
    if (!SG(sapi_started) || !REQUEST()) {
        return SUCCESS;
    }
    /* A worker script continues afterwards, unless its process is rewound. */
    int (*end)(forkyard_request *) = worker_script && !is_rewinding ? api->finish : api->end;
    if (end(REQUEST()) < 0) {
        php_handle_aborted_connection();
    }
    return SUCCESS;
}
