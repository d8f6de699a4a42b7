"""The submit path: a service file and a site -> a plan, a job directory, a submitted job.

In: a service file, the name or file of a site. Out: `Planned`, `Prepared`, JobHandle. Touches: reads site, service,
model and template files; `write_job` makes the job directory, `launch` submits it; nothing else changes the world.
"""

from hpcserve.deploy.model_files import ModelFiles, model_directory, read_model
from hpcserve.deploy.places import find_site, jobs_folder, list_sites, read_templates, read_text
from hpcserve.deploy.submit_path import Planned, Prepared, launch, plan_service, prepare, write_job

__all__ = [
    "ModelFiles",
    "Planned",
    "Prepared",
    "find_site",
    "jobs_folder",
    "launch",
    "list_sites",
    "model_directory",
    "plan_service",
    "prepare",
    "read_model",
    "read_templates",
    "read_text",
    "write_job",
]
