/*
 * heap.c, part of shim.c: huge pages for large scripts.
 *
 * PHP gets memory from the kernel in chunks of 2 MB and returns most of it after each request, so a script that
 * needs 20 MB causes 5,000 page faults each time. Huge pages need one fault each, but PHP uses them only if an
 * environment variable is set. The first chunk gets none: every worker has it, and the few pages that a small script
 * touches would become 2 MB each.
 */

#define HUGE_PAGES "USE_ZEND_ALLOC_HUGE_PAGES"

static void forbid_huge_pages_in_first_chunk(void)
{
    zend_mm_heap *heap = zend_mm_get_heap();
    if (!zend_mm_is_custom_heap(heap)) {
        uintptr_t chunk = (uintptr_t)heap & ~(uintptr_t)(ZEND_MM_CHUNK_SIZE - 1);
        madvise((void *)chunk, ZEND_MM_CHUNK_SIZE, MADV_NOHUGEPAGE);
    }
}

/* Module start-up. An operator's setting has priority. */
static int start_with_huge_pages(void)
{
    if (getenv(HUGE_PAGES)) {
        return sapi.startup(&sapi);
    }
    /* The first chunk is touched before it can be excluded. */
    bool is_enabled = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0;
    if (!is_enabled || prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
        return sapi.startup(&sapi);
    }
    setenv(HUGE_PAGES, "1", 1);
    int result = sapi.startup(&sapi);
    unsetenv(HUGE_PAGES);
    forbid_huge_pages_in_first_chunk();
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    return result;
}
