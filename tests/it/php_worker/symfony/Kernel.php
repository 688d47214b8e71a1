<?php
namespace App;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;
use Symfony\Contracts\Service\ResetInterface;

class Basket implements ResetInterface
{
    public array $items = [];

    public function reset(): void
    {
        $this->items = [];
    }
}

class Kernel extends \Symfony\Component\HttpKernel\Kernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
    }

    public function getProjectDir(): string
    {
        return __DIR__;
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'of the tests',
            'http_method_override' => false,
            'session' => ['storage_factory_id' => 'session.storage.factory.native', 'handler_id' => null],
        ]);
        $container->services()->set(Basket::class)->public()->tag('kernel.reset', ['method' => 'reset']);
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach (['hello' => '/hello/{name}', 'visits' => '/visits', 'basket' => '/basket', 'upload' => '/upload', 'stream' => '/stream', 'broken' => '/broken', 'fail' => '/fail/{way}'] as $name => $path) {
            $routes->add($name, $path)->controller("kernel::$name");
        }
    }

    public function hello(Request $request, string $name): Response
    {
        $response = new Response("hello $name, " . $request->query->get('q', 'nothing') . ' at ' . $this->container->get('router')->generate('hello', ['name' => 'you']));
        $response->headers->set('X-Name', $name);
        return $response;
    }

    public function visits(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $session->get('visits', 0) + 1);
        return new Response((string) $session->get('visits'));
    }

    public function basket(Request $request): Response
    {
        $basket = $this->container->get(Basket::class);
        $basket->items[] = $request->query->get('item');
        return new JsonResponse($basket->items);
    }

    public function upload(Request $request): Response
    {
        $file = $request->files->get('f');
        return new Response($file ? $file->getClientOriginalName() . ' ' . $file->getContent() : 'none');
    }

    public function stream(): Response
    {
        return new StreamedResponse(function () {
            foreach (['one ', 'two ', 'three'] as $part) {
                echo $part;
                flush();
            }
        });
    }

    public function broken(): Response
    {
        throw new \RuntimeException('broken on purpose');
    }

    public function fail(string $way): Response
    {
        require_once dirname(__DIR__) . '/fail.php';
        fail($way);
        return new Response('well');
    }
}
