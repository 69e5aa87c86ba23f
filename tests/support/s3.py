"""What the tests do with a server for S3, through boto3: s3.py ENDPOINT COMMAND..."""

import json
import sys
import urllib.request

import boto3

endpoint, command, *words = sys.argv[1:]
known = dict(endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="setup", aws_secret_access_key="setup")
s3 = boto3.client("s3", **known)


def setup(folder):
    """Buckets `kept` (with versions) and `plain`, both with all files of the folder. From now on the server looks at
    signatures. Prints keys of a user, and of a session."""
    import pathlib

    for bucket in ["kept", "plain"]:
        s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file():
            key = str(path.relative_to(folder))
            for bucket in ["kept", "plain"]:
                s3.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
    iam, sts = boto3.client("iam", **known), boto3.client("sts", **known)
    policy = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})
    iam.create_user(UserName="reader")
    iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=policy)
    user = iam.create_access_key(UserName="reader")["AccessKey"]
    role = iam.create_role(RoleName="reader", AssumeRolePolicyDocument="{}")["Role"]
    iam.put_role_policy(RoleName="reader", PolicyName="all", PolicyDocument=policy)
    session = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="tests")["Credentials"]
    headers = {"Content-Type": "text/plain"}
    request = urllib.request.Request(endpoint + "/moto-api/reset-auth", b"0", headers, method="POST")
    urllib.request.urlopen(request).read()
    print(user["AccessKeyId"], user["SecretAccessKey"])
    print(session["AccessKeyId"], session["SecretAccessKey"], session["SessionToken"])


def put(bucket, key, path, key_id, secret):
    """Puts a file there, as that user. Prints the version that it has."""
    user = {**known, "aws_access_key_id": key_id, "aws_secret_access_key": secret}
    with open(path, "rb") as body:
        said = boto3.client("s3", **user).put_object(Bucket=bucket, Key=key, Body=body.read())
    print(said.get("VersionId", ""))


{"setup": setup, "put": put}[command](*words)
