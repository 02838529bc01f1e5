# Breaks each rule that is checked, some of them more than once.
FROM debian as Build
MAINTAINER nobody
ENV VERSION 1
ENV API_TOKEN=secret
COPY here there
ADD here /there
RUN apt-get update
RUN cd /tmp && sudo apt-get install curl | cat
RUN apt install $NOWHERE
Workdir relative

FROM debian:latest
USER root
WORKDIR $UNDEFINED/x
CMD one
CMD ["two"]
