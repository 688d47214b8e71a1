"""A Flask application: a page with a session and a template, and one that computes for about 50 ms."""

from flask import Flask, render_template_string, session

app = application = Flask(__name__)
app.secret_key = "not one"
PAGE = "<h1>{{ title }}</h1>{% for row in rows %}<p>{{ row.number }} {{ row.name }}</p>{% endfor %}"


@app.route("/")
@app.route("/wsgi")
def page():
    session["seen"] = True
    rows = [{"number": number, "name": f"row {number} & more"} for number in range(50)]
    return render_template_string(PAGE, title="A page", rows=rows)


@app.route("/compute")
def compute():
    return {"sum": sum(number * number for number in range(1_000_000))}
