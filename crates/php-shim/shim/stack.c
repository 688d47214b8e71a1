/*
 * stack.c, part of shim.c: where the engine keeps its calls, for readers from outside.
 */

EXPORT void forkyard_shim_stack(struct forkyard_shim_stack *stack)
{
    *stack = (struct forkyard_shim_stack){
        .current_call = (uint64_t)(uintptr_t)&EG(current_execute_data),
        .call_opline = offsetof(zend_execute_data, opline),
        .call_function = offsetof(zend_execute_data, func),
        .call_info = offsetof(zend_execute_data, This) + offsetof(zval, u1.type_info),
        .call_previous = offsetof(zend_execute_data, prev_execute_data),
        .function_type = offsetof(zend_function, type),
        .function_name = offsetof(zend_function, common.function_name),
        .function_file = offsetof(zend_function, op_array.filename),
        .opline_line = offsetof(zend_op, lineno),
        .string_length = offsetof(zend_string, len),
        .string_text = offsetof(zend_string, val),
        .info_code = ZEND_CALL_CODE,
        .info_top = ZEND_CALL_TOP,
        .type_internal = ZEND_INTERNAL_FUNCTION,
    };
}
