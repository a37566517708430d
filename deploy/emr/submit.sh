#!/usr/bin/env bash
# EMR on EC2 with Spark 4.1 or newer: pack the environment, store it, and add a step.
#
#   BUCKET=s3://news CLUSTER=j-XXXXXXXX deploy/emr/submit.sh
#
# Anabranch comes from a package index, or from the wheel that WHEEL names.
#
# Run it on the system that the cluster has (Amazon Linux, the same CPU), with its Python: a packed
# environment holds links to that Python and not Python itself. emr-spark-8.0 has Spark 4.0, which
# Anabranch does not run on.
set -euo pipefail

: "${BUCKET:?the address of a bucket, such as s3://news}"
: "${CLUSTER:?the id of the cluster}"

python3 -m venv env
env/bin/pip install "${WHEEL:-anabranch}[cli]" venv-pack2
# Spark is on the cluster; without its copy the archive is some 280 MB.
env/bin/pip uninstall --yes pyspark
env/bin/venv-pack --force --output env.tar.gz
aws s3 cp env.tar.gz "$BUCKET/env.tar.gz"
aws s3 cp "$(dirname "$0")/../job.py" "$BUCKET/job.py"

# In cluster mode the driver is a container too, so the archive is unpacked beside it. In client
# mode it is not, and Spark stops with: Cannot run program "./env/bin/python".
aws emr add-steps --cluster-id "$CLUSTER" --steps "Type=Spark,Name=news-pairs,ActionOnFailure=CONTINUE,Args=[\
--deploy-mode,cluster,\
--archives,$BUCKET/env.tar.gz#env,\
--conf,spark.yarn.appMasterEnv.PYSPARK_PYTHON=./env/bin/python,\
--conf,spark.executorEnv.PYSPARK_PYTHON=./env/bin/python,\
--conf,spark.executorEnv.NUMBA_CACHE_DIR=/tmp/numba,\
--conf,spark.yarn.appMasterEnv.NUMBA_CACHE_DIR=/tmp/numba,\
--conf,spark.executor.memoryOverheadFactor=0.6,\
$BUCKET/job.py,\
--left,$BUCKET/left,--right,$BUCKET/right,--out,$BUCKET/pairs,\
--checkpoint,$BUCKET/checkpoint,--control,$BUCKET/control,--workers,8]"
