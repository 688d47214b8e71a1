<?php
namespace App;

use Illuminate\Cookie\Middleware\AddQueuedCookiesToResponse;
use Illuminate\Foundation\Http\Kernel as HttpKernel;
use Illuminate\Routing\Middleware\SubstituteBindings;
use Illuminate\Session\Middleware\StartSession;

class Kernel extends HttpKernel
{
    protected $middlewareGroups = ['web' => [AddQueuedCookiesToResponse::class, StartSession::class, SubstituteBindings::class]];
}
