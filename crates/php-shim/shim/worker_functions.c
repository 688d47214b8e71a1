/*
 * worker_functions.c, part of shim.c: functions of worker scripts. They also have FrankenPHP's names, because
 * applications test for these.
 */

static PHP_FUNCTION(forkyard_handle_request);
static PHP_FUNCTION(forkyard_before_snapshot);
static PHP_FUNCTION(forkyard_after_snapshot);
static PHP_FUNCTION(forkyard_worker);
static PHP_FUNCTION(fastcgi_finish_request);
static PHP_FUNCTION(apache_request_headers);

/* FrankenPHP's levels. */
enum { LEVEL_DEBUG = -4, LEVEL_INFO = 0, LEVEL_WARN = 4, LEVEL_ERROR = 8 };

static int level_of(zend_long level)
{
    if (level >= LEVEL_ERROR) {
        return FORKYARD_SHIM_ERROR;
    }
    if (level >= LEVEL_WARN) {
        return FORKYARD_SHIM_WARNING;
    }
    return level >= LEVEL_INFO ? FORKYARD_SHIM_NOTICE : FORKYARD_SHIM_DEBUG;
}

static PHP_FUNCTION(frankenphp_log)
{
    zend_string *message;
    zend_long level = LEVEL_INFO;
    zval *context = NULL;
    smart_str line = {0};

    ZEND_PARSE_PARAMETERS_START(1, 3)
        Z_PARAM_STR(message)
        Z_PARAM_OPTIONAL
        Z_PARAM_LONG(level)
        Z_PARAM_ARRAY(context)
    ZEND_PARSE_PARAMETERS_END();
    append(&line, ZSTR_VAL(message), ZSTR_LEN(message));
    if (context && zend_hash_num_elements(Z_ARRVAL_P(context)) > 0) {
        append(&line, " ", 1);
        if (php_json_encode(&line, context, PHP_JSON_PARTIAL_OUTPUT_ON_ERROR) != SUCCESS || EG(exception)) {
            smart_str_free(&line);
            return;
        }
    }
    smart_str_0(&line);
    if (line.s && worker.log) {
        worker.log(level_of(level), ZSTR_VAL(line.s), ZSTR_LEN(line.s));
    } else if (line.s) {
        fprintf(stderr, "%s\n", ZSTR_VAL(line.s));
    }
    smart_str_free(&line);
}

static void add_header(void *header, void *array)
{
    const char *line = ((sapi_header_struct *)header)->header;
    const char *colon = memchr(line, ':', ((sapi_header_struct *)header)->header_len);
    if (!colon) {
        return;
    }
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    zval *before = zend_symtable_str_find(Z_ARRVAL_P((zval *)array), line, (size_t)(colon - line));
    zend_string *joined = zend_strpprintf(0, "%s%s%s", before ? Z_STRVAL_P(before) : "", before ? ", " : "", value);
    add_assoc_str_ex(array, line, (size_t)(colon - line), joined);
}

static PHP_FUNCTION(frankenphp_response_headers)
{
    ZEND_PARSE_PARAMETERS_NONE();
    array_init(return_value);
    zend_llist_apply_with_argument(&SG(sapi_headers).headers, add_header, return_value);
}

/* FastCGI allows one answer per request, so early headers stay with the answer's. */
static PHP_FUNCTION(headers_send)
{
    zend_long status = 200;

    ZEND_PARSE_PARAMETERS_START(0, 1)
        Z_PARAM_OPTIONAL
        Z_PARAM_LONG(status)
    ZEND_PARSE_PARAMETERS_END();
    if (status < 100 || status > 999) {
        zend_argument_value_error(1, "must be between 100 and 999");
        RETURN_THROWS();
    }
    if (status < 200) {
        RETURN_LONG(SUCCESS);
    }
    SG(sapi_headers).http_response_code = (int)status;
    int result = sapi_send_headers();
    sapi_flush();
    RETURN_LONG(result);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle, 0, 1, _IS_BOOL, 0)
    ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_log, 0, 1, IS_VOID, 0)
    ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
    ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, level, IS_LONG, 0, "0")
    ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, context, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_snapshot, 0, 1, IS_VOID, 0)
    ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_send, 0, 0, IS_LONG, 0)
    ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finish, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry worker_functions[] = {
    PHP_FE(forkyard_handle_request, arginfo_handle)
    PHP_FE(forkyard_before_snapshot, arginfo_snapshot)
    PHP_FE(forkyard_after_snapshot, arginfo_snapshot)
    PHP_FALIAS(frankenphp_handle_request, forkyard_handle_request, arginfo_handle)
    PHP_FALIAS(frankenphp_finish_request, fastcgi_finish_request, arginfo_finish)
    PHP_FALIAS(frankenphp_request_headers, apache_request_headers, arginfo_headers)
    PHP_FE(frankenphp_response_headers, arginfo_headers)
    PHP_FALIAS(apache_response_headers, frankenphp_response_headers, arginfo_headers)
    PHP_FE(headers_send, arginfo_send)
    PHP_FE(frankenphp_log, arginfo_log)
    PHP_FE(forkyard_worker, arginfo_headers)
    PHP_FE_END
};

static int register_worker_functions(int module_number)
{
    REGISTER_MAIN_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_DEBUG", LEVEL_DEBUG, CONST_PERSISTENT | CONST_CS);
    REGISTER_MAIN_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_INFO", LEVEL_INFO, CONST_PERSISTENT | CONST_CS);
    REGISTER_MAIN_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_WARN", LEVEL_WARN, CONST_PERSISTENT | CONST_CS);
    REGISTER_MAIN_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_ERROR", LEVEL_ERROR, CONST_PERSISTENT | CONST_CS);
    (void)module_number;
    return zend_register_functions(NULL, worker_functions, NULL, MODULE_PERSISTENT);
}
