/*
 * random.c, part of shim.c: random number generators with state in memory. Forked or rewound processes would draw
 * equal numbers if the boot has used one.
 *
 * docs/howto/boot-once.md lists the generators of PHP and its extensions. Those that ask the kernel each time need
 * nothing.
 */

/* Library functions; NULL: not loaded, or not needed. */
static void (*reset_sqlite)(int length, void *bytes);
static void (*reseed_gnutls)(void);
static int (*stir_openssl)(void);

/* Random bytes from the kernel. glibc's getrandom() may keep a state. */
static bool draw(void *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t count = syscall(SYS_getrandom, (char *)bytes + done, length - done, 0);
        if (count < 0 && errno != EINTR) {
            return false;
        }
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* Random bytes for several requests, in shared memory, which a rewind does not restore. NULL: none. */
static struct stock {
    size_t left;
    unsigned char bytes[2000];
} *stock;

/* For a process that is rewound. */
static void keep_stock(void)
{
    void *place = mmap(NULL, sizeof(*stock), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stock = place == MAP_FAILED ? NULL : place;
}

static bool draw_from_stock(void *bytes, size_t length)
{
    if (!stock) {
        return draw(bytes, length);
    }
    if (stock->left < length) {
        if (!draw(stock->bytes, sizeof(stock->bytes))) {
            return false;
        }
        stock->left = sizeof(stock->bytes);
    }
    stock->left -= length;
    memcpy(bytes, stock->bytes + stock->left, length);
    explicit_bzero(stock->bytes + stock->left, length);
    return true;
}

static int draw_for_openssl(unsigned char *buffer, int length)
{
    return length >= 0 && draw(buffer, (size_t)length);
}

static int seed_openssl(const void *buffer, int length)
{
    return 1;
}

static int add_entropy(const void *buffer, int length, double entropy)
{
    return 1;
}

static int is_seeded(void)
{
    return 1;
}

/* Makes OpenSSL keep no state. It reseeds after a fork but can't detect a rewind, and a new seed per request would
 * cost as much as a small request. */
static void let_openssl_draw_from_kernel(void)
{
    /* RAND_METHOD of <openssl/rand.h>, which may be missing at compile time. */
    static const struct {
        int (*seed)(const void *, int);
        int (*bytes)(unsigned char *, int);
        void (*cleanup)(void);
        int (*add)(const void *, int, double);
        int (*pseudorand)(unsigned char *, int);
        int (*status)(void);
    } method = {seed_openssl, draw_for_openssl, NULL, add_entropy, draw_for_openssl, is_seeded};
    int (*set_method)(const void *) = (int (*)(const void *))dlsym(RTLD_DEFAULT, "RAND_set_rand_method");
    if (!set_method || !set_method(&method)) {
        stir_openssl = (int (*)(void))dlsym(RTLD_DEFAULT, "RAND_poll");
    }
}

/* mt_rand() and its users take a new seed at the next call. So does lcg_value(), but up to PHP 8.2 from the time and
 * process id: about two of a thousand requests of a process would have equal seeds. */
static void seed_php(const uint32_t seeds[2])
{
    RANDOM_G(combined_lcg_seeded) = false;
    RANDOM_G(mt19937_seeded) = false;
#if PHP_VERSION_ID < 80300
    php_random_status_state_combinedlcg *lcg = RANDOM_G(combined_lcg)->state;
    lcg->state[0] = (int32_t)(seeds[0] % 2147483562 + 1);
    lcg->state[1] = (int32_t)(seeds[1] % 2147483398 + 1);
    RANDOM_G(combined_lcg_seeded) = true;
#endif
}

/* gmp_random_bits() and gmp_random_range(). The extension seeds its generator at the first use and drops it at the
 * end of a request, which a boot lacks. */
static void drop_gmp(void)
{
    zend_module_entry *gmp = zend_hash_str_find_ptr(&module_registry, "gmp", sizeof("gmp") - 1);
    if (gmp && gmp->request_shutdown_func) {
        gmp->request_shutdown_func(gmp->type, gmp->module_number);
    }
}

/* Before forks and rewinds: finding these takes longer than the rest. */
static void find_generators(void)
{
    reset_sqlite = (void (*)(int, void *))dlsym(RTLD_DEFAULT, "sqlite3_randomness");
    reseed_gnutls = (void (*)(void))dlsym(RTLD_DEFAULT, "gnutls_rnd_refresh");
}

/* In each new process, and after each rewind. */
static void seed_generators(void)
{
    struct {
        uint32_t lcg[2];
        uint32_t libc;
        unsigned short libc48[3];
    } seeds;
    if (!draw_from_stock(&seeds, sizeof(seeds))) {
        return;
    }
    seed_php(seeds.lcg);
    /* random() and rand(); drand48() and similar. */
    srandom(seeds.libc);
    seed48(seeds.libc48);
    if (reset_sqlite) {
        reset_sqlite(0, NULL);
    }
    if (reseed_gnutls) {
        /* It counts forks with pthread_atfork(3), which misses clone3(2). */
        reseed_gnutls();
    }
    if (stir_openssl) {
        stir_openssl();
    }
    drop_gmp();
}
