require "sinatra/base"

# A page as small applications have them: a route, a parameter, a template, a header.
class Site < Sinatra::Base
  set :show_exceptions, false
  set :host_authorization, {}

  get "/:name" do
    @name = params[:name]
    headers "Cache-Control" => "private"
    erb "<!doctype html>\n<p>Hello, <%= Rack::Utils.escape_html(@name) %></p>\n"
  end
end
# What is only loaded for the first request is loaded before workers are forked.
warmup { |site| Rack::MockRequest.new(site).get("/world") }
run Site
