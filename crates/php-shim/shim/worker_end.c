/*
 * worker_end.c, part of shim.c: what runs at the end of a worker script's requests: uncaught exceptions, shutdown
 * functions, destructors.
 *
 * Functions registered by the boot and the warm-up requests stay first in PHP's list. A rewound worker ends its
 * script with each request, and PHP calls the whole list. In a loop, PHP calls the list where the script ends: after
 * a request that fails, and when the worker exits. It can't call the boot's functions for other requests, because
 * frameworks' error handlers deregister themselves when called. A request's functions leave the list with the
 * request.
 */

enum outcome { RETURNED, EXITED, EXITED_WITH_ERROR, CAUGHT, UNCAUGHT };

/* PHP caught a fatal error itself and abandoned its stack. */
static void leave_if_fatal(void)
{
    if (CG(unclean_shutdown)) {
        zend_bailout();
    }
}

#ifdef ZEND_HAS_OOM
static bool has_delayed_oom;

/* Later releases append fields to PHP's globals, so an older libphp may lack this one. Searching takes longer than a
 * small request, so the boot does it. */
static void find_delayed_oom(void)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    has_delayed_oom = dladdr1(&executor_globals, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol &&
           symbol->st_size >= offsetof(zend_executor_globals, delayed_oom) + sizeof(EG(delayed_oom));
}
#else
static void find_delayed_oom(void) {}
#endif

/* After memory exhaustion PHP calls nothing until this is reset, as at the end of its requests. */
static void forget_exhausted_memory(void)
{
#ifdef ZEND_HAS_OOM
    if (has_delayed_oom) {
        EG(delayed_oom).state = ZEND_OOM_STATE_NONE;
    }
#endif
}

/* An exception that the handler did not catch, including exit(). */
static enum outcome settle_exception(void)
{
    enum outcome outcome = UNCAUGHT;
    if (zend_is_unwind_exit(EG(exception))) {
        outcome = EG(exit_status) == 0 ? EXITED : EXITED_WITH_ERROR;
    } else if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
        outcome = CAUGHT;
        zend_user_exception_handler();
    }
    if (EG(exception)) {
        zend_exception_error(EG(exception), E_ERROR);
    }
    return outcome;
}

/* --- shutdown functions --- */

/* The key of the first function that a request registers; keys increase. */
static zend_long first_function_of_request;
/* The only named function in PHP's list is that of session_register_shutdown(). */
static bool has_named_function;
/* The whole list, while a request's functions are called. */
static HashTable *all_functions;
/* In a loop: the request's shutdown functions have started. */
static bool is_ending;

static void note_functions_that_hold(void)
{
    HashTable *list = BG(user_shutdown_function_names);
    first_function_of_request = list ? list->nNextFreeElement : ZEND_LONG_MIN;
    has_named_function = false;
    zend_string *name;
    if (list) {
        ZEND_HASH_FOREACH_STR_KEY(list, name) {
            has_named_function |= name != NULL;
        } ZEND_HASH_FOREACH_END();
    }
}

/* Removes the request's functions from the list. Returns NULL if there are none. */
static HashTable *take_functions_of_request(void)
{
    HashTable *list = BG(user_shutdown_function_names), *own = NULL;
    zend_ulong number;
    zend_string *name;
    void *function;
    if (!list) {
        return NULL;
    }
    dtor_func_t destructor = list->pDestructor;
    ZEND_HASH_FOREACH_KEY_PTR(list, number, name, function) {
        if (name ? has_named_function : (zend_long)number < first_function_of_request) {
            continue;
        }
        if (!own) {
            ALLOC_HASHTABLE(own);
            zend_hash_init(own, 0, NULL, destructor, 0);
        }
        if (name) {
            zend_hash_add_ptr(own, name, function);
        } else {
            zend_hash_next_index_insert_ptr(own, function);
        }
    } ZEND_HASH_FOREACH_END();
    if (!own) {
        return NULL;
    }
    list->pDestructor = NULL;
    zval *left;
    ZEND_HASH_REVERSE_FOREACH_KEY_VAL(list, number, name, left) {
        (void)left;
        if (name && !has_named_function) {
            zend_hash_del(list, name);
        } else if (!name && (zend_long)number >= first_function_of_request) {
            zend_hash_index_del(list, number);
        }
    } ZEND_HASH_FOREACH_END();
    list->pDestructor = destructor;
    list->nNextFreeElement = first_function_of_request;
    return own;
}

/* Calls the functions of a request after which a loop continues. */
static void call_functions_of_request(void)
{
    is_ending = true;
    HashTable *own = take_functions_of_request();
    if (!own) {
        return;
    }
    all_functions = BG(user_shutdown_function_names);
    BG(user_shutdown_function_names) = own;
    php_call_shutdown_functions();
    leave_if_fatal();
    php_free_shutdown_functions();
    leave_if_fatal();
    BG(user_shutdown_function_names) = all_functions;
    all_functions = NULL;
}

/* If a request fails in its shutdown functions or later, the boot's are not called: PHP would have called them
 * before. */
static void forget_late_failure(void)
{
    if (all_functions) {
        php_free_shutdown_functions();
        BG(user_shutdown_function_names) = all_functions;
        all_functions = NULL;
    }
    if (is_ending) {
        forget_last_error();
    }
    if (is_ending && OG(running)) {
        /* An output callback failed; PHP would not call it again. */
        php_output_deactivate();
        php_output_activate();
    }
}

/* Whether the script ends with the request, so that all functions run, and destructors of the boot's objects. */
static bool ends_script(enum outcome outcome)
{
    if (!is_in_worker || outcome == RETURNED) {
        return false;
    }
    if (is_rewinding || outcome == EXITED_WITH_ERROR) {
        return true;
    }
    return outcome == UNCAUGHT && first_function_of_request > 0;
}

/* --- destructors --- */

/* As PHP destroys a global variable. An old object without a destructor is only memory that a rewind restores; a
 * closure is small and releases what it uses. */
static int destroy_global(zval *variable)
{
    if (Z_TYPE_P(variable) == IS_INDIRECT) {
        variable = Z_INDIRECT_P(variable);
    }
    if (Z_TYPE_P(variable) != IS_OBJECT || Z_REFCOUNT_P(variable) != 1) {
        return ZEND_HASH_APPLY_KEEP;
    }
    zend_object *object = Z_OBJ_P(variable);
    bool is_inert = object->handle < first_young_object && object->ce != zend_ce_closure
        && (OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED);
    return is_inert ? ZEND_HASH_APPLY_KEEP : ZEND_HASH_APPLY_REMOVE;
}

/* In PHP's order: global variables, last first, then the rest in order of creation. */
static void call_destructors(void)
{
    zend_try {
        uint32_t before;
        /* None after a fatal error. */
        while (!CG(unclean_shutdown)) {
            before = zend_hash_num_elements(&EG(symbol_table));
            zend_hash_reverse_apply(&EG(symbol_table), destroy_global);
            if (before == zend_hash_num_elements(&EG(symbol_table))) {
                break;
            }
        }
        zend_objects_store_call_destructors(&EG(objects_store));
    } zend_catch {
        zend_objects_store_mark_destructed(&EG(objects_store));
    } zend_end_try();
}
