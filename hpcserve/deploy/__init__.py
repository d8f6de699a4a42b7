"""The submit path: a service file and a site -> a plan, a job directory, a submitted job.

In: a service file, the name or file of a site. Out: `Planned`, `Prepared`, JobHandle. Touches: reads site, service,
model and template files; `write_job` makes the job directory, `launch` submits it; nothing else changes the world.
"""

from hpcserve.deploy.doctor_path import order_doctor
from hpcserve.deploy.measure_path import (
    PreparedMeasurement,
    SubmittedMeasurement,
    find_measurement,
    launch_measurement,
    prepare_measurement,
)
from hpcserve.deploy.measured import read_measurement
from hpcserve.deploy.model_files import ModelFiles, model_directory, read_model
from hpcserve.deploy.on_disk import FILE, FOLDER, what_is_there
from hpcserve.deploy.places import find_site, jobs_folder, list_sites, read_templates, read_text
from hpcserve.deploy.site_file import SiteFile
from hpcserve.deploy.submit_path import Planned, Prepared, check_startable, launch, plan_service, prepare, write_job
from hpcserve.deploy.whole_file import check_place, write_whole

__all__ = [
    "FILE",
    "FOLDER",
    "ModelFiles",
    "Planned",
    "Prepared",
    "PreparedMeasurement",
    "SiteFile",
    "SubmittedMeasurement",
    "check_place",
    "check_startable",
    "find_measurement",
    "find_site",
    "jobs_folder",
    "launch",
    "launch_measurement",
    "list_sites",
    "model_directory",
    "order_doctor",
    "plan_service",
    "prepare",
    "prepare_measurement",
    "read_measurement",
    "read_model",
    "read_templates",
    "read_text",
    "what_is_there",
    "write_job",
    "write_whole",
]
