/*
 * zygote.c, part of shim.c: starts OPcache in a process that forks workers for several users.
 *
 * OPcache starts in two parts, the second after all extensions. The second creates its shared memory, copies all
 * strings of PHP into it, and runs the script of opcache.preload. It is held back until it is clear that there is no
 * such script, which would run as no pool's user.
 *
 * Copying the strings touches most of a 2 MB table, of which each pool would need a copy, so they are hidden from
 * it. Strings that a pool's scripts use are copied when the scripts are compiled, as usual.
 */

#include <sys/stat.h>

static bool is_zygote;
static zend_result (*held_back)(void);

/* The hook follows OPcache in the list of such extensions, because modules start after the settings files were read.
 * PHP removes an extension whose start fails from the list and from phpinfo(), so scripts see none of forkyard's. */
static int hold_back(zend_extension *extension)
{
    (void)extension;
    held_back = zend_post_startup_cb;
    zend_post_startup_cb = NULL;
    return FAILURE;
}

static zend_extension zygote_hook = {
    .name = "forkyard",
    .version = PHP_VERSION,
    .author = "forkyard",
    .URL = "",
    .copyright = "",
    .startup = hold_back,
    .resource_number = -1,
};

/* Extensions to watch: a thread or an open descriptor can't be shared between several users' pools. */
enum { MOST_WATCHED = 256 };
static struct { zend_module_entry *module; zend_result (*start)(INIT_FUNC_ARGS); } watched[MOST_WATCHED];
static size_t watched_count;
/* The first that left something; NULL: none. */
static const char *leaver;

/* Changes when a thread or descriptor is created. */
static uint64_t threads_and_descriptors(void)
{
    struct stat threads = {0};
    int free_number = dup(STDERR_FILENO);
    if (free_number >= 0) {
        close(free_number);
    }
    stat("/proc/self/task", &threads);
    return (uint64_t)threads.st_nlink << 32 | (uint32_t)free_number;
}

static zend_result start_watched(INIT_FUNC_ARGS)
{
    for (size_t i = 0; i < watched_count; i++) {
        zend_module_entry *module = watched[i].module;
        if (module->module_number != module_number) {
            continue;
        }
        module->module_startup_func = watched[i].start;
        uint64_t before = threads_and_descriptors();
        zend_result result = module->module_startup_func(INIT_FUNC_ARGS_PASSTHRU);
        if (!leaver && threads_and_descriptors() != before) {
            leaver = module->name;
        }
        return result;
    }
    return FAILURE;
}

/* Before extensions from files start. */
static void watch_extensions(void)
{
    zend_module_entry *module;
    ZEND_HASH_FOREACH_PTR(&module_registry, module) {
        if (!module->handle || module->module_started || !module->module_startup_func || watched_count == MOST_WATCHED) {
            continue;
        }
        watched[watched_count].module = module;
        watched[watched_count++].start = module->module_startup_func;
        module->module_startup_func = start_watched;
    } ZEND_HASH_FOREACH_END();
}

EXPORT const char *forkyard_shim_leaver(void)
{
    return leaver;
}

/* What OPcache looks up during its start, by PHP's API version: only versions compared with a start that hides
 * nothing. */
#if ZEND_MODULE_API_NO == 20220829 || ZEND_MODULE_API_NO == 20240924 || ZEND_MODULE_API_NO == 20250925
#define HIDES_STRINGS 1
#else
#define HIDES_STRINGS 0
#endif

#if HIDES_STRINGS
/* The functions that OPcache overrides, and the setting it registers a handler for. */
static const char *const overridden[] = {"chdir", "file_exists", "is_file", "is_readable"};
static const char include_path[] = "include_path";

/* A table without a pointer: an empty table takes its place. */
struct hidden {
    HashTable *place;
    HashTable whole;
};

static void hide(struct hidden *hidden, HashTable *place)
{
    hidden->place = place;
    hidden->whole = *place;
    zend_hash_init(place, 8, NULL, NULL, 1);
}

static void unhide(struct hidden *hidden)
{
    zend_hash_destroy(hidden->place);
    *hidden->place = hidden->whole;
}

static void keep(HashTable *few, HashTable *all, const char *name, size_t length)
{
    zval *found = zend_hash_str_find(all, name, length);
    if (found) {
        zend_hash_str_add(few, name, length, found);
    }
}

/* Another extension waiting for the end of the start could look up anything. */
static bool is_opcaches_alone(void)
{
    Dl_info info;
#if PHP_VERSION_ID >= 80500
    /* OPcache is part of libphp, and the last part to register this. */
    Dl_info libphp;
    return dladdr((void *)held_back, &info) && dladdr((void *)php_module_startup, &libphp) && info.dli_fbase == libphp.dli_fbase;
#else
    static const char file[] = "/opcache.so";
    if (!dladdr((void *)held_back, &info) || !info.dli_fname) {
        return false;
    }
    size_t length = strlen(info.dli_fname);
    return length >= sizeof(file) - 1 && strcmp(info.dli_fname + length - (sizeof(file) - 1), file) == 0;
#endif
}

static int start_opcache(void)
{
    if (!is_opcaches_alone()) {
        return held_back();
    }
    HashTable *all_functions = CG(function_table), *functions_in_use = EG(function_table);
    HashTable *all_classes = CG(class_table), *classes_in_use = EG(class_table);
    HashTable *constants = EG(zend_constants), *settings = EG(ini_directives);
    HashTable *globals = CG(auto_globals);
    zend_string **known = zend_known_strings;
    HashTable few_functions, no_classes, no_constants, no_globals, few_settings;
    struct hidden modules, filters, wrappers, transports;
    zend_string *no_strings[ZEND_STR_LAST_KNOWN];

    zend_hash_init(&few_functions, 8, NULL, NULL, 1);
    zend_hash_init(&no_classes, 8, NULL, NULL, 1);
    zend_hash_init(&no_constants, 8, NULL, NULL, 1);
    zend_hash_init(&no_globals, 8, NULL, NULL, 1);
    zend_hash_init(&few_settings, 8, NULL, NULL, 1);
    for (size_t i = 0; i < sizeof(overridden) / sizeof(*overridden); i++) {
        keep(&few_functions, all_functions, overridden[i], strlen(overridden[i]));
    }
    keep(&few_settings, settings, include_path, sizeof(include_path) - 1);
    for (size_t i = 0; i < ZEND_STR_LAST_KNOWN; i++) {
        no_strings[i] = zend_empty_string;
    }

    CG(function_table) = EG(function_table) = &few_functions;
    CG(class_table) = EG(class_table) = &no_classes;
    EG(zend_constants) = &no_constants;
    EG(ini_directives) = &few_settings;
    CG(auto_globals) = &no_globals;
    hide(&modules, &module_registry);
    hide(&filters, php_get_stream_filters_hash_global());
    hide(&wrappers, php_stream_get_url_stream_wrappers_hash_global());
    hide(&transports, php_stream_xport_get_hash());
    zend_known_strings = no_strings;

    int result = held_back();

    zend_known_strings = known;
    unhide(&transports);
    unhide(&wrappers);
    unhide(&filters);
    unhide(&modules);
    CG(auto_globals) = globals;
    EG(ini_directives) = settings;
    EG(zend_constants) = constants;
    CG(class_table) = all_classes;
    EG(class_table) = classes_in_use;
    CG(function_table) = all_functions;
    EG(function_table) = functions_in_use;
    zend_hash_destroy(&few_settings);
    zend_hash_destroy(&no_globals);
    zend_hash_destroy(&no_constants);
    zend_hash_destroy(&no_classes);
    zend_hash_destroy(&few_functions);
    return result;
}
#else
static int start_opcache(void)
{
    return held_back();
}
#endif

/* The held-back part, after the start. */
static int finish_zygote(void)
{
    const char *script = ini_text("opcache.preload");
    if (script && *script) {
        return FORKYARD_SHIM_PRELOADS;
    }
    if (!held_back) {
        return 0;
    }
    zend_interned_strings_switch_storage(0);
    int result = start_opcache();
    held_back = NULL;
    zend_interned_strings_switch_storage(1);
    shutdown_memory_manager(1, 0);
    return result == SUCCESS ? 0 : -1;
}
