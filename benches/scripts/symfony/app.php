<?php
// A small Symfony application: a page of 30 rows with generated URLs, among 100 routes.

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Generator\UrlGeneratorInterface;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

require_once '/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php';

final class Kernel extends BaseKernel
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
        $container->extension('framework', ['secret' => 'secret', 'router' => ['utf8' => true], 'http_method_override' => false]);
        $container->services()->set('logger', Psr\Log\NullLogger::class)->public();
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('home', '/')->controller([$this, 'home']);
        for ($i = 0; $i < 100; $i++) {
            $routes->add("page$i", "/page$i/{id}/{name}")->controller([$this, 'home'])->requirements(['id' => '\d+']);
        }
    }

    public function home(): Response
    {
        $router = $this->getContainer()->get('router');
        $rows = '';
        for ($i = 0; $i < 30; $i++) {
            $url = $router->generate("page$i", ['id' => $i, 'name' => "row $i"], UrlGeneratorInterface::ABSOLUTE_PATH);
            $rows .= '<tr><td>' . htmlspecialchars("Row $i") . '</td><td><a href="' . htmlspecialchars($url) . "\">open</a></td></tr>\n";
        }
        return new Response("<!DOCTYPE html><title>Home</title><table>\n$rows</table>\n");
    }
}
