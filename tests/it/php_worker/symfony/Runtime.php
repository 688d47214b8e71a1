<?php
namespace App;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

// A runtime for worker scripts, by FrankenPHP's contract with Symfony: the boot's variables are the default of each request's, and
// the kernel is told of the end of each answer.
class Runtime extends SymfonyRuntime
{
    public function getRunner(?object $application): RunnerInterface
    {
        return $application instanceof HttpKernelInterface ? new Runner($application) : parent::getRunner($application);
    }
}

class Runner implements RunnerInterface
{
    private ?Request $request = null;
    private ?object $response = null;

    public function __construct(private HttpKernelInterface $kernel)
    {
    }

    public function run(): int
    {
        $defaults = array_filter($_SERVER, fn ($name) => strncmp($name, 'HTTP_', 5) !== 0, ARRAY_FILTER_USE_KEY);
        $defaults['APP_RUNTIME_MODE'] = 'web=1&worker=1';
        $answer = function () use ($defaults) {
            $_SERVER += $defaults;
            $this->request = Request::createFromGlobals();
            $this->response = $this->kernel->handle($this->request);
            $this->response->send();
        };
        while (frankenphp_handle_request($answer)) {
            if ($this->kernel instanceof TerminableInterface && $this->response) {
                $this->kernel->terminate($this->request, $this->response);
            }
            [$this->request, $this->response] = [null, null];
            gc_collect_cycles();
        }
        return 0;
    }
}
