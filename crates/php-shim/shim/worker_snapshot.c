/*
 * worker_snapshot.c, part of shim.c: worker scripts whose process is rewound after each request.
 *
 * The preloader boots as for a loop. A worker takes a snapshot when its script waits for the first request and is
 * rewound to it after each: memory with all of PHP's and its extensions' state, stack and descriptors. Before a
 * rewind it does what others can observe of a request's end, and frees nothing that the rewind restores anyway. This
 * file distinguishes objects and resources older than the snapshot from younger ones. The younger ones are ended as
 * at the end of PHP's requests: connections are closed properly, files and locks released.
 */
#include <malloc.h>
#include <setjmp.h>

#include "zend_generators.h"

/* Where a worker waits for its first request. */
static jmp_buf snapshot_point;
/* Resources from here on are younger than the snapshot. */
static zend_long first_young_resource;
static bool has_called_after;

static void resume_snapshot(void *context)
{
    (void)context;
    _longjmp(snapshot_point, 1);
}

/* Installs the handler of the time limit once for all requests. */
static void handle_time_limit(void)
{
    zend_long seconds = EG(timeout_seconds);
    zend_set_timeout(0, 1);
    EG(timeout_seconds) = seconds;
}

/* Asks for a request. In a worker that is rewound, the first call takes the snapshot and returns once per request. */
static int next_request(forkyard_request **request)
{
    int what = worker_script->next(worker_script->context, sent_status, request, &handled);
    if (what != FORKYARD_SHIM_SNAPSHOT) {
        return what;
    }
    is_rewinding = true;
    /* A warm-up request may have changed it. */
    umask(boot_umask);
    handle_time_limit();
    keep_stock();
    if (_setjmp(snapshot_point) == 0) {
        worker_script->take(worker_script->context, resume_snapshot);
    }
    php_clear_stat_cache(0, NULL, 0);
    what = worker_script->next(worker_script->context, 0, request, &handled);
    seed_generators();
    struct forkyard_shim_worker_facts facts = {0};
    worker_script->facts(worker_script->context, &facts);
    /* Without the current one. */
    request_count = (zend_long)facts.requests - 1;
    return what;
}

/* Calls functions in order. Returns false if one failed. */
static bool call_all(zval *functions)
{
    zval *function;
    if (Z_TYPE_P(functions) != IS_ARRAY) {
        return true;
    }
    ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(functions), function) {
        zval result;
        ZVAL_UNDEF(&result);
        call_user_function(NULL, NULL, function, &result, 0, NULL);
        zval_ptr_dtor(&result);
        if (EG(exception)) {
            return false;
        }
    } ZEND_HASH_FOREACH_END();
    return true;
}

/* In a worker, before its first request after the snapshot. Returns false if an exception is pending. */
static bool call_after_snapshot(void)
{
    if (has_called_after || api == &boot_api) {
        return true;
    }
    has_called_after = true;
    return call_all(&after_snapshot);
}

static void note_function(INTERNAL_FUNCTION_PARAMETERS, zval *functions)
{
    zend_fcall_info function;
    zend_fcall_info_cache cache;
    ZEND_PARSE_PARAMETERS_START(1, 1)
        Z_PARAM_FUNC(function, cache)
    ZEND_PARSE_PARAMETERS_END();
    if (worker_script && api != &boot_api) {
        /* There will be no snapshot. */
        return;
    }
    if (Z_TYPE_P(functions) != IS_ARRAY) {
        array_init(functions);
    }
    Z_TRY_ADDREF(function.function_name);
    add_next_index_zval(functions, &function.function_name);
}

static PHP_FUNCTION(forkyard_before_snapshot)
{
    zval ignored;
    ZVAL_UNDEF(&ignored);
    note_function(INTERNAL_FUNCTION_PARAM_PASSTHRU, worker_script ? &before_snapshot : &ignored);
    zval_ptr_dtor(&ignored);
}

static PHP_FUNCTION(forkyard_after_snapshot)
{
    note_function(INTERNAL_FUNCTION_PARAM_PASSTHRU, &after_snapshot);
}

/* For forkyard_worker(). */
static void add_facts(zval *array)
{
    struct forkyard_shim_worker_facts facts = {0};
    zval reasons;
    if (!worker_script || !is_rewinding) {
        return;
    }
    worker_script->facts(worker_script->context, &facts);
    add_assoc_string(array, "isolation", facts.is_rewinding ? "rewind" : "fork");
    if (!facts.is_rewinding) {
        return;
    }
    add_assoc_long(array, "rewound", (zend_long)facts.rewound);
    add_assoc_long(array, "rewound_pages", (zend_long)facts.pages);
    add_assoc_long(array, "rewound_nanoseconds", (zend_long)facts.nanos);
    add_assoc_long(array, "mappings_read", (zend_long)facts.mappings_read);
    array_init(&reasons);
    for (size_t i = 0; i < FORKYARD_SHIM_REASONS; i++) {
        add_assoc_long(&reasons, facts.reasons[i], (zend_long)facts.given_up[i]);
    }
    add_assoc_zval(array, "given_up", &reasons);
}

/* The flag that each object gets at the end would change pages of the snapshot, so objects without a destructor get
 * it here. */
static void mark_what_has_no_destructor(void)
{
    zend_objects_store *store = &EG(objects_store);
    for (uint32_t i = 1; i < store->top; i++) {
        zend_object *object = store->object_buckets[i];
        if (IS_OBJ_VALID(object) && object->handlers->dtor_obj == zend_objects_destroy_object && !object->ce->destructor) {
            GC_ADD_FLAGS(object, IS_OBJ_DESTRUCTOR_CALLED);
        }
    }
}

/* PHP returns a free chunk to the kernel at once, unless it has recently done so several times. A chunk that the
 * heap keeps at the snapshot need not be mapped and unmapped in each request. */
static void keep_spare_chunks(void)
{
    enum { CHUNKS = 2, TIMES = 6, OVERHEAD = 4 * 4096 };
    void *blocks[CHUNKS];
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < CHUNKS; i++) {
            blocks[i] = emalloc(ZEND_MM_CHUNK_SIZE - OVERHEAD);
        }
        for (int i = CHUNKS; i-- > 0;) {
            efree(blocks[i]);
        }
    }
}

/* Likewise for malloc(3): brk(2) would move the end of its heap in each request, with a fault per page. A rewind
 * drops a request's memory, so nothing is returned to the kernel before. */
static void keep_spare_heap(void)
{
    enum { SPARE = 1 << 20, PIECE = 64 << 10, PIECES = 32, MOST = 32 << 20 };
    void *pieces[PIECES];
    size_t count = 0;
    mallopt(M_TRIM_THRESHOLD, MOST);
    mallopt(M_MMAP_THRESHOLD, SPARE);
    mallopt(M_TOP_PAD, SPARE);
    const void *end = sbrk(0);
    while (count < PIECES && sbrk(0) == end) {
        pieces[count++] = malloc(PIECE);
    }
    while (count > 0) {
        free(pieces[--count]);
    }
}

EXPORT int forkyard_shim_before_snapshot(int is_to_rewind)
{
    volatile bool is_well = false;
    zend_try {
        is_well = call_all(&before_snapshot);
        if (EG(exception)) {
            zend_exception_error(EG(exception), E_ERROR);
        }
    } zend_catch {
        is_well = false;
    } zend_end_try();
    if (!is_well || !is_to_rewind) {
        return is_well ? 0 : -1;
    }
    /* The script is compiled. Each rewind would restore the open file. */
    close_script_file();
    zend_gc_collect_cycles();
    keep_spare_chunks();
    keep_spare_heap();
    mark_what_has_no_destructor();
    /* Do not reuse older numbers. */
    EG(objects_store).free_list_head = -1;
    first_young_object = EG(objects_store).top;
    first_young_resource = EG(regular_list).nNextFreeElement;
    let_openssl_draw_from_kernel();
    return 0;
}

/* As the end of PHP's requests does for all objects. */
static void free_young_objects(void)
{
    zend_objects_store *store = &EG(objects_store);
    EG(flags) |= EG_FLAGS_OBJECT_STORE_NO_REUSE;
    for (uint32_t i = store->top; i-- > first_young_object;) {
        zend_object *object = store->object_buckets[i];
        if (!IS_OBJ_VALID(object) || (OBJ_FLAGS(object) & IS_OBJ_FREE_CALLED)) {
            continue;
        }
        if (object->handlers->free_obj == zend_object_std_dtor || object->ce == zend_ce_closure) {
            continue;
        }
        GC_ADD_FLAGS(object, IS_OBJ_FREE_CALLED);
        GC_ADDREF(object);
        object->handlers->free_obj(object);
    }
}

static void close_young_resources(void)
{
    zend_resource *resource;
    ZEND_HASH_REVERSE_FOREACH_PTR(&EG(regular_list), resource) {
        if (resource && resource->handle >= first_young_resource && resource->type >= 0) {
            zend_list_close(resource);
        }
    } ZEND_HASH_FOREACH_END();
}

/* A failing step does not skip the next. */
static void end_answer(void)
{
    zend_try { php_output_end_all(); } zend_end_try();
    zend_unset_timeout();
    /* The next steps may start another timer; go_back() stops it. */
    EG(timeout_seconds) = 0;
    zend_try { end_modules(); } zend_end_try();
    zend_try { php_output_deactivate(); } zend_end_try();
    zend_try { sapi_deactivate(); } zend_end_try();
    forget_request_info();
}

/* After the script has ended in any way. Returns only if the process must exit. */
static void go_back(void)
{
    EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
    EG(current_execute_data) = NULL;
    forget_exhausted_memory();
    php_call_shutdown_functions();
    forget_exhausted_memory();
    call_destructors();
    forget_exhausted_memory();
    if (is_handling) {
        end_answer();
    }
    zend_try { close_young_resources(); } zend_end_try();
    zend_try { free_young_objects(); } zend_end_try();
    zend_unset_timeout();
    /* The following steps query OPcache; a rewind undoes this. */
    zend_set_memory_limit(SIZE_MAX >> 1);
    worker_script->rewind(worker_script->context);
}
