/*
 * loaded.c, part of shim.c: the files of loaded extensions.
 */

static void name_file(void *handle, void (*each)(void *context, const char *path, size_t length), void *context)
{
    struct link_map *map = NULL;
    if (handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] == '/') {
        each(context, map->l_name, strlen(map->l_name));
    }
}

EXPORT void forkyard_shim_loaded(void (*each)(void *context, const char *path, size_t length), void *context)
{
    zend_module_entry *module;
    ZEND_HASH_FOREACH_PTR(&module_registry, module) {
        name_file(module->handle, each, context);
    } ZEND_HASH_FOREACH_END();
    zend_llist_position position;
    zend_extension *extension = zend_llist_get_first_ex(&zend_extensions, &position);
    for (; extension; extension = zend_llist_get_next_ex(&zend_extensions, &position)) {
        name_file(extension->handle, each, context);
    }
}
