#!/bin/sh
# A test's seeds on eight tasks of a Slurm array: sbatch docs/jobs/sim-slurm.sh; docs/sim.md, "Past one machine".
# Each task runs the seeds of its index, which it reads from Slurm's own variables, and leaves a file of results in a shared folder.
#SBATCH --job-name=simulation
#SBATCH --array=0-7
#SBATCH --cpus-per-task=2

mkdir -p results
SOCKEYE_SIM_RESULTS=results exec ./simulation --exact a_client_retries
