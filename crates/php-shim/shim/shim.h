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
#define FORKYARD_SHIM_VERSION 13

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
    uint8_t zygote;          /* workers of pools of several users come of this process: no script may run in it */
    uint8_t worker_script;   /* the functions for worker scripts are there: FORKYARD_SHIM_PUT_BACK or another number than 0 */
    uint8_t pushes_jobs;     /* there is a process that keeps jobs: scripts have forkyard_push() */
};

/* Workers are put back after each request. */
#define FORKYARD_SHIM_PUT_BACK 2

/* What the start of a zygote may end in besides 0 and -1: opcache.preload names a script, which was not run. */
#define FORKYARD_SHIM_PRELOADS 1

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
    /* The request's script could not be opened; forbidden: by open_basedir. */
    void (*unopened)(forkyard_request *request, const char *path, uint8_t forbidden);
    /* A line for the daemon's log. */
    void (*log)(int level, const char *text, size_t length);
    uint32_t log_limit;    /* a message to an error log is cut to fit into a line of this length, bytes */
    uint8_t log_level;     /* messages below it do not go to standard error; enum forkyard_shim_level */
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
    /* 1: the script's name has an ending that is not to be run; 2: it is outside application.script_root; 3: it has a zero byte,
     * and `script` is NULL. */
    uint8_t denied;
};

/* FORKYARD_SHIM_VERSION of the shim. */
uint32_t forkyard_shim_version(void);

/* In the preloader: module start-up, once. 0, -1 or FORKYARD_SHIM_PRELOADS. PHP may also exit by itself. */
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
/* After the start of a zygote: the first extension that has started a thread or left a descriptor open; NULL: none is known. */
const char *forkyard_shim_leaver(void);
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

/* How serious a line for the daemon's log is. */
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

/* A forkyard_request in the preloader: its boot, or a warm-up request. It has no client. */
struct forkyard_shim_boot_request {
    const struct forkyard_shim_pair *params;
    size_t count;
    void (*write)(void *context, const char *bytes, size_t length);
    void *context;
    uint8_t is_finished;
};

/* How a worker script has ended. */
struct forkyard_shim_end {
    uint8_t has_asked;  /* it has called forkyard_handle_request() */
    uint8_t has_failed; /* by a fatal error or an exception */
    uint8_t is_aborted; /* because its client is gone */
    const char *message; /* of the error; NULL: there is none */
    const char *file;
    uint32_t line;
};

/* What becomes of workers after a request; for forkyard_worker(). */
#define FORKYARD_SHIM_REASONS 8
struct forkyard_shim_worker_facts {
    uint8_t is_rewinding;   /* else it ends */
    uint64_t requests;      /* that this worker was given */
    uint64_t rewound;       /* of all workers of the boot, as the rest */
    uint64_t pages;
    uint64_t nanos;
    uint64_t mappings_read;
    uint64_t given_up[FORKYARD_SHIM_REASONS];
    const char *reasons[FORKYARD_SHIM_REASONS];
};

/* What `next` of a worker script says, besides 0 and 1: the process is to take a snapshot of itself, and then to ask again. */
#define FORKYARD_SHIM_SNAPSHOT 2

/* The worker script of an application that boots once. */
struct forkyard_shim_script {
    const char *path;
    const char *mode;         /* how it answers, as the configuration has it */
    const char *max_requests; /* what it finds as MAX_REQUESTS */
    struct forkyard_shim_boot_request *boot;
    /* The script asks for a request. 1, or 0: it is to end. `status`: the response code of the request before, 0 if there
     * is none. Both texts and request live until the next call. In the preloader it forks, and returns in the worker; the
     * preloader does not come back. */
    int (*next)(void *context, int status, forkyard_request **request, struct forkyard_shim_request *description);
    /* Takes the snapshot: `resume` is called each time the process was put back, and jumps. */
    void (*take)(void *context, void (*resume)(void *context));
    /* The request is over: puts the process back, and returns only if it has to end instead. */
    void (*rewind)(void *context);
    void (*facts)(void *context, struct forkyard_shim_worker_facts *facts);
    /* The script has ended. What it has left to do at the end of PHP's request follows. */
    void (*ended)(void *context, const struct forkyard_shim_end *end);
    /* It has called opcache_reset(). */
    void (*code_reset)(void *context);
    void *context;
};
/* In the preloader: runs it. Returns when it has ended, there or in a worker. 0, or -1 when PHP could not begin. */
int forkyard_shim_run_script(const struct forkyard_shim_script *script);
/* In the preloader, before any worker: each request boots the application that is to boot once, for this reason. */
void forkyard_shim_boots_again(const char *why, size_t length);
/* In a worker of such a script, between two requests: how much memory PHP's own heap has taken from the system. */
uint64_t forkyard_shim_heap_bytes(void);
/* Likewise: 1 when OPcache takes no more code, else 0. */
int forkyard_shim_is_code_full(void);

/* In the preloader, when the last warm-up request is over: calls what the script wants to be called, and makes the heap ready if
 * workers are put back. 0, or -1: a function has failed. */
int forkyard_shim_before_snapshot(int is_to_rewind);

/* Before the end of a worker: closes persistent connections, and lets extensions say good-bye. */
void forkyard_shim_end_worker(void);

#endif
