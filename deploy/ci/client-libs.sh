# Sourced: install client libraries in other languages below .cache, and say where
# they are. Needs Java and Maven, and Python 3.
export KAFKA_LIBS=${KAFKA_LIBS:-$PWD/.cache/apache-kafka}
bash deploy/kafka/kafka.sh fetch
venv=$PWD/.cache/python-clients
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q kafka-python==3.0.12 confluent-kafka==2.16.1
fi
export PYTHON_CLIENTS=$venv/bin/python
