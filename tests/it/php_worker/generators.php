<?php
// A number of each random number generator, by name.
function draw(bool $has_gmp): array
{
    $libc = FFI::cdef('long random(void); int rand(void); double drand48(void); long mrand48(void);');
    $gnutls = FFI::cdef('int gnutls_rnd(int level, void *bytes, size_t length);', 'libgnutls.so.30');
    $bytes = FFI::new('char[8]');
    $gnutls->gnutls_rnd(1, $bytes, 8);
    $list = range(1, 40);
    shuffle($list);
    $drawn = [
        'mt_rand' => mt_rand() . ' ' . mt_rand(),
        'rand' => rand() . ' ' . rand(),
        'shuffle' => implode(' ', $list),
        'str_shuffle' => str_shuffle('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'),
        'array_rand' => implode(' ', array_rand(range(0, 99), 30)),
        'lcg_value' => lcg_value() . ' ' . lcg_value(),
        'uniqid' => uniqid('', true),
        'random_bytes' => bin2hex(random_bytes(8)),
        'random_int' => random_int(PHP_INT_MIN, PHP_INT_MAX),
        'password_hash' => password_hash('x', PASSWORD_BCRYPT, ['cost' => 4]),
        'session_create_id' => session_create_id(),
        'openssl' => bin2hex(openssl_random_pseudo_bytes(8)),
        'sodium' => bin2hex(sodium_crypto_secretbox_keygen()),
        'sqlite' => (new SQLite3(':memory:'))->querySingle('SELECT random()'),
        'gnutls' => bin2hex(FFI::string($bytes, 8)),
        'libc random' => $libc->random() . ' ' . $libc->rand(),
        'libc drand48' => $libc->drand48() . ' ' . $libc->mrand48(),
    ];
    if (PHP_VERSION_ID >= 80200) {
        $drawn['Randomizer'] = bin2hex((new Random\Randomizer())->getBytes(8));
        $drawn['Mt19937'] = bin2hex((new Random\Randomizer(new Random\Engine\Mt19937()))->getBytes(8));
    }
    // PHP's seed for it has 20 random bits, besides the second and the process id.
    if ($has_gmp) {
        $drawn['gmp'] = gmp_strval(gmp_random_bits(64));
    }
    return $drawn;
}
