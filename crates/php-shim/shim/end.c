/*
 * end.c, part of shim.c: the end of a worker.
 *
 * PHP's module shutdown mostly frees memory, which only a continuing process needs. In a worker, freeing classes and
 * functions would first copy their pages, which are shared with the parent. So a worker does only what others can
 * observe: it closes persistent connections and shuts down third-party extensions. PHP's own only free memory.
 */

/* PHP's own extensions have its version. */
static bool is_of_php(const char *version)
{
    zend_module_entry *standard = zend_hash_str_find_ptr(&module_registry, "standard", sizeof("standard") - 1);
    return standard && standard->version && version && strcmp(version, standard->version) == 0;
}

/* Modules to shut down. Found once, before the fork: checking a hundred libraries would map a page of each into an
 * exiting worker. */
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
    /* In the order of zend_shutdown(). A failure does not skip the others. */
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
