/*
 * shim.h: what the PHP shim and the preloader say to each other. ffi.rs is the same in Rust.
 *
 * The shim is compiled once per PHP API number, because PHP's structures and macros differ between them; the preloader
 * loads the one that fits the libphp it has opened.
 */
#ifndef FORKYARD_SHIM_H
#define FORKYARD_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include "forkyard.h"

/* Grows with every change of this file. */
#define FORKYARD_SHIM_VERSION 6

/* How an ini value is set: the numbers are PHP's own. */
enum forkyard_shim_mode {
    FORKYARD_SHIM_USER = 1,  /* scripts may change it */
    FORKYARD_SHIM_SYSTEM = 4 /* scripts may not */
};

/* What scripts are told of the files of settings, where PHP has read other ones. NULL: there is none. */
struct forkyard_shim_ini_names {
    const char *php_ini;
    const char *directories; /* of the files that are read after it, as PHP_INI_SCAN_DIR has them */
    const char *scanned;     /* those files, as php_ini_scanned_files() gives them */
};

struct forkyard_shim_start {
    const char *php_ini;     /* php.ini or its directory; NULL: where libphp looks by itself */
    const char *ini_entries; /* "name=value\n" lines that win over every file; NULL: none */
    const char *executable;  /* for the PHP_BINARY constant; NULL: it is empty */
    const char *disabled_functions; /* besides php.ini's; NULL: none */
    const struct forkyard_shim_ini_names *ini_names; /* NULL: those that PHP has read */
    uint8_t no_php_ini;      /* no file is read */
    uint8_t extended_info;   /* scripts are compiled with what debuggers and profilers want */
};

/* Ini values that matter before PHP sees a request: mostly how its parameters name a script. */
struct forkyard_shim_facts {
    uint8_t expose_php;
    uint8_t fix_pathinfo;
    uint8_t discard_path;
    uint8_t script_path_encoded;
    const char *doc_root; /* NULL: not set */
};

struct forkyard_shim_worker {
    const struct forkyard_api *api;
    /* Writes what fpm_get_status() gives as JSON and returns its length, 0 if it does not fit. */
    size_t (*status)(const forkyard_request *request, char *buffer, size_t size);
    /* Whether a request may bring this setting along; says in the log why not. NULL: it may bring any. */
    uint8_t (*may_set)(const char *name);
    /* A response code that the script set when the headers were gone: php-fpm's access log has that one. */
    void (*later_status)(forkyard_request *request, uint32_t status);
    uint32_t log_limit;    /* a message to an error log is cut to fit into a line of this length, bytes */
    uint8_t stderr_caught; /* messages also go to standard error */
};

/* One request. Texts are C strings that live until forkyard_shim_serve returns; NULL: there is none. */
struct forkyard_shim_request {
    const char *method;
    const char *query_string;
    const char *request_uri;
    const char *content_type;
    const char *script; /* NULL: no script, the answer is "File not found." */
    const char *authorization;
    const char *role;
    int64_t content_length;
    uint32_t status; /* the response code to begin with */
    uint8_t denied;  /* 1: the script's name has an ending that is not to be run; 2: it is outside application.script_root */
};

/* FORKYARD_SHIM_VERSION of the shim. */
uint32_t forkyard_shim_version(void);

/* In the preloader: module start-up, once. 0, or -1. PHP may also exit by itself. */
int forkyard_shim_start(const struct forkyard_shim_start *start);
/* In the preloader or a worker, outside a request: 0, or -1 when there is no such entry. value NULL: it stays, but only
 * an administrator may change it from now on. */
int forkyard_shim_set_ini(const char *name, const char *value, int mode);

/* Where the engine keeps the calls that it is in. Offsets, but for the first; the bits are of words there. */
struct forkyard_shim_stack {
    uint64_t current_call; /* the address of the pointer to the innermost call, in this process and all forked of it */
    uint32_t call_opline;
    uint32_t call_function;
    uint32_t call_info;
    uint32_t call_previous;
    uint32_t function_type;
    uint32_t function_name;
    uint32_t function_file;
    uint32_t opline_line;
    uint32_t string_length;
    uint32_t string_text;
    uint32_t info_code;     /* in a call's information: a file or eval */
    uint32_t info_top;      /* in a call's information: not called by PHP code */
    uint32_t type_internal; /* in a function's type: not PHP code */
};
/* In the preloader, once it has started. */
void forkyard_shim_stack(struct forkyard_shim_stack *stack);
/* After the start: names the files that extensions were loaded from. `each` must return. */
void forkyard_shim_loaded(void (*each)(void *context, const char *path, size_t length), void *context);
/* After the start: an ini value, which lives until it is changed; NULL: there is no such entry. */
const char *forkyard_shim_ini(const char *name);

/* Instead of serving, in a process of its own: a request that says nothing. 0, or -1. The two functions after it are
 * for such a process. */
int forkyard_shim_begin_quiet(void);
/* Names the scripts that OPcache holds. `each` must return. */
void forkyard_shim_scripts(void (*each)(void *context, const char *path, size_t length, int64_t hits), void *context);
/* Compiles a script and does not run it. 0, or -1 when it can't be compiled. */
int forkyard_shim_compile(const char *path);

/* What PHP can be asked about itself. */
enum forkyard_shim_report {
    FORKYARD_SHIM_VERSION_TEXT = 0, /* PHP, the engine and its extensions */
    FORKYARD_SHIM_MODULES = 1,
    FORKYARD_SHIM_INFO = 2
};
/* Instead of everything below: writes that to standard output. 0, or -1. */
int forkyard_shim_report(int what);

/* In a worker: before its first request, after its signal handlers are in place. */
void forkyard_shim_begin_worker(const struct forkyard_shim_worker *worker, struct forkyard_shim_facts *facts);
/* 1 when the path leads to anything, else 0. Asks PHP's cache of resolved paths first. */
int forkyard_shim_resolves(const char *path);
/* 0, or -1 when PHP is in no state to serve another request. */
int forkyard_shim_serve(forkyard_request *request, const struct forkyard_shim_request *description);
/* Module shutdown: closes persistent connections. */
void forkyard_shim_end_worker(void);

#endif
