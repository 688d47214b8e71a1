/*
 * json.c, part of shim.c: JSON that PHP decodes for forkyard.
 */

/* Decodes a text into arrays. PHP's scanner needs a final zero byte, which this adds: the buffer has room for length
 * + 1 bytes. Returns false if the text is not JSON. */
static bool decode_json(zval *value, char *text, size_t length, int depth)
{
    text[length] = '\0';
    return php_json_decode(value, text, length, true, depth) == SUCCESS;
}
