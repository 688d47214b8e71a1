<?php
// Ways in which a request goes wrong. The classes and functions are declared where they are used: some requests never come back.

class Last
{
    public function __construct(private string $how)
    {
    }

    public function __destruct()
    {
        match ($this->how) {
            'throws' => throw new RuntimeException('thrown in a destructor'),
            default => print('printed in a destructor'),
        };
    }
}

function descend(int $depth): int
{
    return descend($depth + 1) + 1;
}

function exhaust(): void
{
    for ($all = [];; $all[] = str_repeat('x', 1 << 20)) {
    }
}

function fail(string $way): void
{
    switch ($way) {
        case 'exception':
            throw new RuntimeException('thrown on purpose');
        case 'undefined':
            no_such_function();
        case 'parse':
            eval('this is not PHP');
        case 'compile':
            eval('class Twice {} class Twice {}');
        case 'memory':
            exhaust();
        case 'time':
            set_time_limit(1);
            while (true) {
            }
        case 'recursion':
            ini_set('memory_limit', (string) (memory_get_usage(true) + (8 << 20)));
            descend(1);
        case 'user':
            trigger_error('triggered on purpose', E_USER_ERROR);
            break;
        case 'warning':
            echo $nothing;
            echo 'after a warning';
            break;
        case 'destructor':
            $last = new Last('throws');
            unset($last);
            break;
        case 'held':
            $GLOBALS['last'] = new Last('prints');
            exit(1);
        case 'shutdown':
            register_shutdown_function(fn () => print(' first'));
            register_shutdown_function(fn () => eval('class Again {} class Again {}'));
            echo 'body';
            exit;
        case 'buffer':
            ob_start();
            echo 'never seen';
            exhaust();
        case 'callback':
            ob_start(function (string $text) {
                exhaust();
            });
            echo 'body';
            exit;
        case 'handler':
            set_exception_handler(function (Throwable $error) {
                echo 'handled: ', $error->getMessage();
                exit(3);
            });
            throw new RuntimeException('thrown for the handler');
    }
}
