/*
 * heap.c: a part of shim.c. Huge pages for the memory of large scripts.
 *
 * PHP takes memory from the kernel in chunks of 2 MB and gives most of it back after each request, so that a script
 * that needs 20 MB pays for 5,000 page faults each time. It can ask for huge pages, which are one fault each, but does
 * so only where an environment variable wants it. The first chunk gets none: every worker has it, and the few pages of
 * it that a small script touches would become 2 MB in each of them.
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

/* Module start-up. An operator's own choice comes first. */
static int start_with_huge_pages(void)
{
    if (getenv(HUGE_PAGES)) {
        return sapi.startup(&sapi);
    }
    /* The first chunk is touched before it can be had out. */
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
