<?php
namespace App;

use Illuminate\Foundation\Support\Providers\RouteServiceProvider;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Route;

class Routes extends RouteServiceProvider
{
    public function boot()
    {
        $this->app->scoped(Basket::class);
        $this->routes(function () {
            Route::middleware('web')->group(function () {
                Route::get('/hello/{name}', fn (Request $request, string $name) => response("hello $name, " . $request->query('q', 'nothing') . ' at ' . url('/hello/you'))->header('X-Name', $name));
                Route::get('/visits', function (Request $request) {
                    $request->session()->put('visits', $request->session()->get('visits', 0) + 1);
                    return (string) $request->session()->get('visits');
                });
                Route::get('/basket', function (Request $request) {
                    app(Basket::class)->items[] = $request->query('item');
                    config(['app.left' => (config('app.left') ?? '') . $request->query('item')]);
                    return response()->json([app(Basket::class)->items, config('app.left')]);
                });
                Route::post('/upload', fn (Request $request) => $request->file('f')->getClientOriginalName() . ' ' . $request->file('f')->get());
                Route::get('/fail/{way}', function (string $way) {
                    require_once base_path('../fail.php');
                    fail($way);
                    return 'well';
                });
                Route::get('/broken', fn () => throw new \RuntimeException('broken on purpose'));
            });
        });
    }
}
