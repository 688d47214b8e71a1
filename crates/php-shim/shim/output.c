/*
 * output.c, part of shim.c: a script's output and headers.
 */

static size_t on_write(const char *bytes, size_t length)
{
    if (!REQUEST()) {
        /* A worker script's output between two requests goes to the log. */
        return api && !worker_script ? length : fwrite(bytes, 1, length, stderr);
    }
    if (has_finished) {
        return length;
    }
    if (api->write(REQUEST(), bytes, length) < 0) {
        php_handle_aborted_connection();
        return 0;
    }
    return length;
}

static void on_flush(void *context)
{
    if (!context || has_finished) {
        return;
    }
#if PHP_VERSION_ID >= 80400
    sapi_send_headers();
#endif
    if (api->flush(context) < 0) {
        php_handle_aborted_connection();
    }
}

static bool is_header(const sapi_header_struct *header, const char *name, size_t length)
{
    return header->header_len > length && strncasecmp(header->header, name, length) == 0;
}

#define IS_HEADER(header, name) is_header(header, name, sizeof(name) - 1)

static const char *reason_phrase(int code)
{
    for (size_t i = 0; i < http_status_map_len; i++) {
        if (http_status_map[i].code == code) {
            return http_status_map[i].str;
        }
    }
    return NULL;
}

/* Appends the status line. Returns false if the script's own "Status:" header replaces it. */
static bool append_status(smart_str *out, zend_llist *headers, int *code)
{
    char line[STATUS_LINE_SIZE];
    const char *status_line = SG(sapi_headers).http_status_line;
    const char *blank = status_line ? strchr(status_line, ' ') : NULL;

    if (sapi_ini.rfc2616_headers && status_line) {
        slprintf(line, sizeof(line), "%s", status_line);
        if (blank) {
            *code = atoi(blank + 1);
        }
    } else if (blank && blank - status_line >= 5 && strncasecmp(status_line, "HTTP/", 5) == 0) {
        slprintf(line, sizeof(line), "Status:%s", blank);
        *code = atoi(blank + 1);
    } else {
        zend_llist_position position;
        sapi_header_struct *header = zend_llist_get_first_ex(headers, &position);
        for (; header; header = zend_llist_get_next_ex(headers, &position)) {
            if (IS_HEADER(header, "Status:")) {
                return false;
            }
        }
        const char *reason = reason_phrase(*code);
        if (reason) {
            slprintf(line, sizeof(line), "Status: %d %s", *code, reason);
        } else {
            slprintf(line, sizeof(line), "Status: %d", *code);
        }
    }
    append(out, line, strlen(line));
    append(out, "\r\n", 2);
    return true;
}

static int on_send_headers(sapi_headers_struct *sapi_headers)
{
    if (SG(request_info).no_headers) {
        return SAPI_HEADER_SENT_SUCCESSFULLY;
    }
    smart_str out = {0};
    sent_status = SG(sapi_headers).http_response_code;
    int code = SG(sapi_headers).http_response_code;
    bool has_status = false;
    if (sapi_ini.nph || code != 200) {
        has_status = append_status(&out, &sapi_headers->headers, &code);
    }

    zend_llist_position position;
    sapi_header_struct *header = zend_llist_get_first_ex(&sapi_headers->headers, &position);
    for (; header; header = zend_llist_get_next_ex(&sapi_headers->headers, &position)) {
        if (header->header_len == 0) {
            /* It would end the headers. */
            continue;
        }
        if (IS_HEADER(header, "Status:")) {
            if (has_status) {
                continue;
            }
            has_status = true;
        } else if (code == 304 && IS_HEADER(header, "Content-Type:")) {
            continue;
        }
        append(&out, header->header, header->header_len);
        append(&out, "\r\n", 2);
    }
    append(&out, "\r\n", 2);
    php_output_write_unbuffered(ZSTR_VAL(out.s), ZSTR_LEN(out.s));
    smart_str_free(&out);
    return SAPI_HEADER_SENT_SUCCESSFULLY;
}

/* Up to PHP 8.2 a script may change the response code after the headers. */
static void tell_later_status(void)
{
    int status = SG(sapi_headers).http_response_code;
    if (REQUEST() && worker.later_status && sent_status > 0 && status > 0 && status != sent_status) {
        worker.later_status(REQUEST(), (uint32_t)status);
    }
}
