/*
 * settings.c, part of shim.c: ini values from the pool's configuration, and from PHP_VALUE and PHP_ADMIN_VALUE.
 */

/* Sets the value between requests. Returns false if there is no such entry. Values that PHP rejects are silently
 * ignored, as in php-fpm. */
static bool change_ini(const char *name, const char *value, int mode, struct ini_change *change)
{
    zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), name, strlen(name));
    if (!entry) {
        return false;
    }
    zend_string *text = zend_string_init(value, strlen(value), 1);
    if (entry->on_modify && entry->on_modify(entry, text, entry->mh_arg1, entry->mh_arg2, entry->mh_arg3,
                                             PHP_INI_STAGE_ACTIVATE) != SUCCESS) {
        zend_string_release(text);
        return true;
    }
    if (change) {
        change->entry = entry;
        change->before = entry->value;
        change->during = text;
        change->modifiable = entry->modifiable;
    }
    entry->value = text;
    /* As in php-fpm: .user.ini files, ini_set() and administrators' values can still change a user's value. */
    if (mode == FORKYARD_SHIM_SYSTEM) {
        entry->modifiable = ZEND_INI_SYSTEM;
    }
    return true;
}

/* For undo_param_ini(). */
static void remember(const struct ini_change *change)
{
    if (change->entry) {
        struct ini_change *kept = pemalloc(sizeof(*kept), 1);
        *kept = *change;
        kept->earlier = ini_changes;
        ini_changes = kept;
    }
}

/* Allows changes only to administrators. Returns false if there is no such entry. */
static bool hold_ini(const char *name)
{
    zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), name, strlen(name));
    if (entry) {
        entry->modifiable = ZEND_INI_SYSTEM;
    }
    return entry != NULL;
}

#include "disabling.c"

static void on_param_ini(zval *name, zval *value, zval *index, int type, void *mode)
{
    (void)index;
    if (!name) {
        return;
    }
    if (type != ZEND_INI_PARSER_ENTRY) {
        say_formatted(FORKYARD_SHIM_ERROR, "Passing INI directive through FastCGI: only classic entries are allowed");
        return;
    }
    if (Z_STRLEN_P(name) == 0) {
        say_formatted(FORKYARD_SHIM_ERROR, "Passing INI directive through FastCGI: empty key");
        return;
    }
    if (!value) {
        say_formatted(FORKYARD_SHIM_ERROR, "Passing INI directive through FastCGI: empty value for key '%s'", Z_STRVAL_P(name));
        return;
    }
    if (worker.may_set && !worker.may_set(Z_STRVAL_P(name))) {
        return;
    }
    /* Only the pool's settings may make changes that can't be undone. */
    bool is_lasting = strcmp(Z_STRVAL_P(name), "extension") == 0 || strcmp(Z_STRVAL_P(name), "disable_classes") == 0;
    struct ini_change change = {0};
    if (is_lasting || !change_ini(Z_STRVAL_P(name), Z_STRVAL_P(value), *(int *)mode, &change)) {
        say_formatted(FORKYARD_SHIM_ERROR, "Passing INI directive through FastCGI: unable to set '%s'", Z_STRVAL_P(name));
        return;
    }
    remember(&change);
    if (strcmp(Z_STRVAL_P(name), "disable_functions") == 0) {
        disable_functions_for_request(Z_STRVAL_P(value));
    }
}

static void apply_param_ini(const char *text, int mode)
{
    if (!text) {
        return;
    }
    char *lines;
    zend_spprintf(&lines, 0, "%s\n", text);
    zend_parse_ini_string(lines, 1, ZEND_INI_SCANNER_NORMAL, (zend_ini_parser_cb_t)on_param_ini, &mode);
    efree(lines);
}

/* Undoes PHP_VALUE and PHP_ADMIN_VALUE, latest first. php-fpm keeps them for later requests. */
static void undo_param_ini(void)
{
    while (ini_changes) {
        struct ini_change *change = ini_changes;
        zend_ini_entry *entry = change->entry;
        int result = SUCCESS;
        ini_changes = change->earlier;
        if (entry->on_modify) {
            zend_try {
                result = entry->on_modify(entry, change->before, entry->mh_arg1, entry->mh_arg2, entry->mh_arg3,
                                          PHP_INI_STAGE_DEACTIVATE);
            } zend_catch {
                result = FAILURE;
            } zend_end_try();
        }
        entry->value = change->before;
        entry->modifiable = change->modifiable;
        if (result == SUCCESS) {
            zend_string_release(change->during);
        }
        free(change);
    }
    enable_functions_again();
}

#if PHP_VERSION_ID < 80500
static void disable_classes(const char *list)
{
    char *names = PG(disable_classes) = strdup(list), *rest = NULL;
    char *copy = strdup(names);
    for (char *name = strtok_r(copy, " ,", &rest); name; name = strtok_r(NULL, " ,", &rest)) {
        zend_disable_class(name, strlen(name));
    }
    free(copy);
}
#endif
