// A small application: a route with a parameter, a template of its own, JSON.
const express = require("express");
const app = express();
const row = (n) => `<tr><td>${n}</td><td>${(n * 7919) % 1000}</td></tr>`;
const table = Array.from({ length: 100 }, (_, n) => row(n)).join("\n");
app.get("/", (request, response) => response.send(`<!doctype html><title>Page</title><table>${table}</table>`));
app.get("/items/:id", (request, response) => response.json({ id: request.params.id }));
app.listen(process.env.PORT, "127.0.0.1");
