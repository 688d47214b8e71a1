/*
 * shim.h: the interface between the shim and the preloader. ffi.rs is its Rust counterpart.
 *
 * The shim is compiled once per PHP API number, because PHP's structures and macros differ. The preloader loads the
 * one that fits its libphp.
 */
#ifndef FORKYARD_SHIM_H
#define FORKYARD_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include "forkyard.h"

/* Increases with every change of this file's interface. */
#define FORKYARD_SHIM_VERSION 15

/* How an ini value is set. The numbers are PHP's. */
enum forkyard_shim_mode {
    FORKYARD_SHIM_USER = 1,  /* scripts may change it */
    FORKYARD_SHIM_SYSTEM = 4 /* scripts may not */
};

/* Names of settings files that scripts see, if PHP has read other files. NULL: none. */
struct forkyard_shim_ini_names {
    const char *php_ini;
    const char *directories; /* of the other files, as in PHP_INI_SCAN_DIR */
    const char *scanned;     /* these files, as php_ini_scanned_files() returns them */
};

struct forkyard_shim_start {
    const char *php_ini;     /* php.ini or its directory; NULL: libphp's default */
    const char *ini_entries; /* "name=value\n" lines that override every file; NULL: none */
    const char *executable;  /* the PHP_BINARY constant; NULL: empty */
    const char *disabled_functions; /* in addition to php.ini's; NULL: none */
    const struct forkyard_shim_ini_names *ini_names; /* NULL: the files that PHP has read */
    uint8_t no_php_ini;      /* read no file */
    uint8_t extended_info;   /* compile scripts with information for debuggers and profilers */
    uint8_t zygote;          /* workers of several users are forked from this process: no script may run in it */
    uint8_t worker_script;   /* add the functions for worker scripts: FORKYARD_SHIM_PUT_BACK, or another value than 0 */
    uint8_t pushes_jobs;     /* jobs are enabled: scripts have forkyard_push() */
};

/* Workers are rewound after each request. */
#define FORKYARD_SHIM_PUT_BACK 2

/* A zygote's result besides 0 and -1: opcache.preload names a script, which was not run. */
#define FORKYARD_SHIM_PRELOADS 1

/* Ini values needed before PHP sees a request, mostly to find the script. */
struct forkyard_shim_facts {
    uint8_t expose_php;
    uint8_t fix_pathinfo;
    uint8_t discard_path;
    uint8_t script_path_encoded;
    const char *doc_root; /* NULL: not set */
};

struct forkyard_shim_worker {
    const struct forkyard_api *api;
    /* Writes the value of fpm_get_status() as JSON. Returns its length, or 0 if it does not fit. */
    size_t (*status)(const forkyard_request *request, char *buffer, size_t size);
    /* Whether a request may set this; logs refusals. NULL: all settings are allowed. */
    uint8_t (*may_set)(const char *name);
    /* A response code set after the headers were sent, for the access log, as in php-fpm. */
    void (*later_status)(forkyard_request *request, uint32_t status);
    /* The request's script could not be opened. forbidden: because of open_basedir. */
    void (*unopened)(forkyard_request *request, const char *path, uint8_t forbidden);
    /* A file that the request has included, if its description asks for them. */
    void (*included)(forkyard_request *request, const char *path, size_t length);
    void (*log)(int level, const char *text, size_t length);
    /* A jump may have left a signal handler. */
    void (*forget_timer)(void);
    uint32_t log_limit;    /* longest line of an error log, in bytes; longer messages are cut */
    uint8_t log_level;     /* messages below this level are kept from standard error; enum forkyard_shim_level */
    uint8_t stderr_caught; /* also write messages to standard error */
};

/* One request. Texts are C strings that live until forkyard_shim_serve returns, or NULL. */
struct forkyard_shim_request {
    const char *method;
    const char *query_string;
    const char *request_uri;
    const char *content_type;
    const char *script; /* NULL: none, the answer is "File not found." */
    const char *authorization;
    const char *cookies;
    const char *document_root;
    const char *php_value; /* ini values for this request */
    const char *php_admin_value;
    int64_t content_length;
    uint32_t status; /* the initial response code */
    /* 1: the script's extension is not allowed; 2: it is outside application.script_root; 3: its name contains a
     * zero byte, and `script` is NULL; 4: it leads out of its release and release_shared. */
    uint8_t denied;
    uint8_t names_files; /* call `included` with each file before the end */
};

/* The shim's FORKYARD_SHIM_VERSION. */
uint32_t forkyard_shim_version(void);

/* Preloader: module start-up, once. Returns 0, -1 or FORKYARD_SHIM_PRELOADS. PHP may exit instead. */
int forkyard_shim_start(const struct forkyard_shim_start *start);
/* Preloader or worker, outside a request. Returns 0, or -1 if there is no such entry. value NULL: keeps the value
 * but allows changes only to administrators. */
int forkyard_shim_set_ini(const char *name, const char *value, int mode);

/* Where the engine keeps its calls. Offsets, except the first; the last three are bit masks. */
struct forkyard_shim_stack {
    uint64_t current_call; /* address of the pointer to the innermost call, in this process and its children */
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
    uint32_t info_code;     /* of a call's information: a file or eval */
    uint32_t info_top;      /* of a call's information: not called by PHP code */
    uint32_t type_internal; /* of a function's type: not PHP code */
};
/* Preloader, after the start. */
void forkyard_shim_stack(struct forkyard_shim_stack *stack);
/* After the start: the files of loaded extensions. `each` must return. */
void forkyard_shim_loaded(void (*each)(void *context, const char *path, size_t length), void *context);
/* After a zygote's start: the first extension that started a thread or left a descriptor open; NULL: none. */
const char *forkyard_shim_leaver(void);
/* After the start: an ini value, valid until it is changed; NULL: no such entry. */
const char *forkyard_shim_ini(const char *name);

/* In a process that serves nothing: begins a request without output. Returns 0 or -1. The next two functions require
 * it. */
int forkyard_shim_begin_quiet(void);
/* Lists OPcache's scripts. `each` must return. */
void forkyard_shim_scripts(void (*each)(void *context, const char *path, size_t length, int64_t hits), void *context);
/* Compiles a script without running it. Returns 0, or -1 on failure. */
int forkyard_shim_compile(const char *path);

/* Reports that PHP can print. */
enum forkyard_shim_report {
    FORKYARD_SHIM_VERSION_TEXT = 0, /* PHP, the engine and its extensions */
    FORKYARD_SHIM_MODULES = 1,
    FORKYARD_SHIM_INFO = 2
};
/* Replaces all functions below: prints a report to standard output. Returns 0 or -1. */
int forkyard_shim_report(int what);

/* Worker: before its first request, after its signal handlers are installed. */
void forkyard_shim_begin_worker(const struct forkyard_shim_worker *worker, struct forkyard_shim_facts *facts);
/* Returns 1 if the path exists. Uses PHP's cache of resolved paths. */
int forkyard_shim_resolves(const char *path);
/* Returns 0, or -1 if PHP can't serve another request. */
int forkyard_shim_serve(forkyard_request *request, const struct forkyard_shim_request *description);

/* Severity of a line in the daemon's log. */
enum forkyard_shim_level {
    FORKYARD_SHIM_DEBUG = 0,
    FORKYARD_SHIM_NOTICE = 1,
    FORKYARD_SHIM_WARNING = 2,
    FORKYARD_SHIM_ERROR = 3
};

struct forkyard_shim_pair {
    const char *name;
    const char *value;
};

/* A forkyard_request in the preloader: its boot or a warm-up request. It has no client. */
struct forkyard_shim_boot_request {
    const struct forkyard_shim_pair *params;
    size_t count;
    void (*write)(void *context, const char *bytes, size_t length);
    void *context;
    uint8_t is_finished;
};

/* How a worker script ended. */
struct forkyard_shim_end {
    uint8_t has_asked;  /* it called forkyard_handle_request() */
    uint8_t has_failed; /* by a fatal error or an exception */
    uint8_t is_aborted; /* because its client is gone */
    const char *message; /* the error's, or NULL */
    const char *file;
    uint32_t line;
};

/* What happens to workers after a request; for forkyard_worker(). */
#define FORKYARD_SHIM_REASONS 8
struct forkyard_shim_worker_facts {
    uint8_t is_rewinding;   /* otherwise it exits */
    uint64_t requests;      /* of this worker */
    uint64_t rewound;       /* this and the rest: of all workers of the boot */
    uint64_t pages;
    uint64_t nanos;
    uint64_t mappings_read;
    uint64_t given_up[FORKYARD_SHIM_REASONS];
    const char *reasons[FORKYARD_SHIM_REASONS];
};

/* A result of `next` besides 0 and 1: take a snapshot and call it again. */
#define FORKYARD_SHIM_SNAPSHOT 2

struct forkyard_shim_script {
    const char *path;
    const char *mode;         /* how it answers, from the configuration */
    const char *max_requests; /* its MAX_REQUESTS */
    struct forkyard_shim_boot_request *boot;
    /* Returns 1 and a request, or 0: end the script. `status`: the response code of the last request, or 0. Texts
     * and request live until the next call. In the preloader it forks, returns in the worker, and never returns in
     * the preloader. */
    int (*next)(void *context, int status, forkyard_request **request, struct forkyard_shim_request *description);
    /* Takes the snapshot. `resume` is called after each rewind and jumps. */
    void (*take)(void *context, void (*resume)(void *context));
    /* Rewinds after a request. Returns only if the process must exit instead. */
    void (*rewind)(void *context);
    void (*facts)(void *context, struct forkyard_shim_worker_facts *facts);
    /* The script has ended. The rest of PHP's request shutdown follows. */
    void (*ended)(void *context, const struct forkyard_shim_end *end);
    /* The script called opcache_reset(). */
    void (*code_reset)(void *context);
    void *context;
};
/* Preloader: runs the script. Returns when it has ended, in the preloader or a worker: 0, or -1 if PHP could not
 * begin. */
int forkyard_shim_run_script(const struct forkyard_shim_script *script);
/* Preloader, before any worker: why each request boots the application. */
void forkyard_shim_boots_again(const char *why, size_t length);
/* Worker of such a script, between two requests: bytes of PHP's heap. */
uint64_t forkyard_shim_heap_bytes(void);
/* Likewise: returns 1 if OPcache is full. */
int forkyard_shim_is_code_full(void);

/* Preloader, after the last warm-up request: runs the script's callbacks, and prepares the heap for rewinds. Returns
 * 0, or -1 if a callback failed. */
int forkyard_shim_before_snapshot(int is_to_rewind);

/* Before a worker exits: closes persistent connections and shuts extensions down. */
void forkyard_shim_end_worker(void);

#endif
