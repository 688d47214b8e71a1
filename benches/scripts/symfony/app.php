<?php
// A small Symfony application: a page of 30 rows with generated URLs, among 100 routes, and one with a form.

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Bundle\TwigBundle\TwigBundle;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\Form\Extension\Core\Type\{CheckboxType, ChoiceType, DateType, EmailType, IntegerType, SubmitType, TextareaType, TextType};
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Generator\UrlGeneratorInterface;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

foreach (['Bundle/FrameworkBundle', 'Bundle/TwigBundle', 'Bridge/Twig', 'Component/Form', 'Component/Validator'] as $part) {
    require_once "/usr/share/php/Symfony/$part/autoload.php";
}

final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
        yield new TwigBundle();
    }

    public function getProjectDir(): string
    {
        return __DIR__;
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', ['secret' => 'secret', 'router' => ['utf8' => true], 'http_method_override' => false,
            'form' => ['enabled' => true, 'csrf_protection' => ['enabled' => false]], 'csrf_protection' => false, 'validation' => ['enabled' => true]]);
        $container->extension('twig', ['default_path' => __DIR__ . '/templates', 'strict_variables' => true]);
        $services = $container->services();
        $services->set('logger', Psr\Log\NullLogger::class)->public();
        $services->alias('form_factory', 'form.factory')->public();
        $services->alias('page_maker', 'twig')->public();
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('home', '/')->controller([$this, 'home']);
        $routes->add('form', '/form')->controller([$this, 'form']);
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

    public function form(): Response
    {
        $container = $this->getContainer();
        $form = $container->get('form_factory')->createBuilder()
            ->add('name', TextType::class)
            ->add('email', EmailType::class)
            ->add('age', IntegerType::class, ['required' => false])
            ->add('country', ChoiceType::class, ['choices' => array_combine(range('a', 'z'), range('a', 'z'))])
            ->add('born', DateType::class, ['widget' => 'single_text'])
            ->add('text', TextareaType::class)
            ->add('agreed', CheckboxType::class)
            ->add('send', SubmitType::class)
            ->getForm();
        return new Response($container->get('page_maker')->render('form.html.twig', ['form' => $form->createView()]));
    }
}
