#!/usr/bin/env python3
"""Pushes a job for each service of a file: its key is the service, and its tenant the owner, so that no owner waits for another."""

import json
import os
import socket
import sys

TASKS = ["congruence", "url_status_codes", "wfs_capabilities", "wfs_layers", "wms_capabilities", "wms_layers"]
jobs = []
with open(sys.argv[1]) as services:
    for line in services:
        name, owner = (line.split() + ["", ""])[:2]
        job = {"queue": "checks", "kind": "service", "key": f"service/{name}", "tenant": owner, "steps": TASKS}
        jobs.append({**job, "content_type": "text/plain", "payload": line.rstrip("\n")})
with socket.socket(socket.AF_UNIX) as jobs_socket:
    jobs_socket.connect(os.environ["FORKYARD_JOBS"])
    jobs_socket.sendall(json.dumps({"command": "push", "jobs": jobs}).encode() + b"\n")
    answer = json.loads(jobs_socket.makefile().readline())
if answer["result"] != "pushed":
    sys.exit(answer["message"])
print(len(answer["jobs"]), "services")
