/*
 * end.c: a part of shim.c. The end of a worker.
 *
 * PHP's module shutdown mostly frees memory that a process which goes on would want back. A worker ends: freeing its classes
 * and functions would first copy every page of them, which it shares with the process that it was forked from. So only that is
 * done which others could notice: persistent connections are closed, and extensions say good-bye, except those that are part
 * of PHP itself, which only free.
 */

/* Extensions of PHP's own have its version. */
static bool is_of_php(const char *version)
{
    zend_module_entry *standard = zend_hash_str_find_ptr(&module_registry, "standard", sizeof("standard") - 1);
    return standard && standard->version && version && strcmp(version, standard->version) == 0;
}

/* Those to be told. Found once, by the process that workers are forked from: to look at a hundred libraries for it would map a
 * page of each into a worker that is about to end. */
static zend_module_entry **modules_to_tell;
static size_t modules_to_tell_count;
static zend_extension **extensions_to_tell;
static size_t extensions_to_tell_count;

static void find_whom_to_tell(void)
{
    size_t modules = zend_hash_num_elements(&module_registry), extensions = zend_llist_count(&zend_extensions);
    modules_to_tell = calloc(modules + 1, sizeof(*modules_to_tell));
    extensions_to_tell = calloc(extensions + 1, sizeof(*extensions_to_tell));
    if (!modules_to_tell || !extensions_to_tell) {
        return;
    }
    zend_module_entry *module;
    ZEND_HASH_REVERSE_FOREACH_PTR(&module_registry, module) {
        if (module->module_started && !is_of_php(module->version) && module != &module_entry) {
            modules_to_tell[modules_to_tell_count++] = module;
        }
    } ZEND_HASH_FOREACH_END();
    for (zend_llist_element *at = zend_extensions.head; at; at = at->next) {
        zend_extension *extension = (zend_extension *)at->data;
        if (extension->shutdown && !is_of_php(extension->version)) {
            extensions_to_tell[extensions_to_tell_count++] = extension;
        }
    }
}

EXPORT void forkyard_shim_end_worker(void)
{
    /* In the order of zend_shutdown(). What fails does not keep the others from it. */
    zend_first_try {
        zend_hash_graceful_reverse_destroy(&EG(persistent_list));
    } zend_end_try();
    for (size_t i = 0; i < modules_to_tell_count; i++) {
        zend_module_entry *module = modules_to_tell[i];
        zend_first_try {
            if (module->module_shutdown_func) {
                module->module_shutdown_func(module->type, module->module_number);
            }
            if (module->globals_size && module->globals_dtor) {
                module->globals_dtor(module->globals_ptr);
            }
        } zend_end_try();
    }
    for (size_t i = 0; i < extensions_to_tell_count; i++) {
        zend_extension *extension = extensions_to_tell[i];
        zend_first_try {
            extension->shutdown(extension);
        } zend_end_try();
    }
}
